package kafkasink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
	"github.com/weir-stream/weir/sinks/kafka/slots"
)

// lane is a client with its transactional id and the account of what it wrote.
type lane struct {
	slot     int
	id       string
	producer Producer
	tracker  *tracker
	// begun tells that the client is in a transaction: it begins with the first record sent, so an empty one never exists.
	begun   bool
	started time.Time
}

// send hands a record to the client, beginning the transaction with the first one.
func (l *lane) send(ctx context.Context, deadline time.Duration, topic string, partition int32, r *Record, millis int64) error {
	if err := l.tracker.admit(ctx, deadline); err != nil {
		return err
	}
	if !l.begun && l.id != "" {
		l.started = time.Now()
		if err := l.failure(l.producer.Begin()); err != nil {
			return err
		}
	}
	l.begun = true
	l.tracker.sending(r.Size())
	if err := l.producer.Send(topic, partition, r, millis); err != nil {
		return l.failure(err)
	}
	return nil
}

// failure is what the task fails with when the client that writes does.
func (l *lane) failure(err error) error {
	return answers.Failure(answers.Write, err, onTransaction("Write", l.id))
}

// flush waits until every record sent is accepted and returns what was written.
func (l *lane) flush(ctx context.Context, deadline time.Duration) ([]preparedTopic, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if err := l.failure(l.producer.Flush(ctx)); err != nil {
		// A failed record says more than the flush that waited for it.
		return nil, errors.Join(l.tracker.err(), fmt.Errorf("flush within %s: %w", deadline, err))
	}
	// The last reports may still be on their way to the tracker.
	if err := l.tracker.wait(ctx, deadline, 1); err != nil {
		return nil, err
	}
	return l.tracker.accepted()
}

// lanes owns the clients of one subtask: it initialises ids in the background, ahead of need, and closes clients that are given up.
type lanes struct {
	open     func(slot int) (*lane, error) // makes a client without I/O
	deadline time.Duration
	logger   *slog.Logger
	cancel   context.CancelFunc
	ctx      context.Context //nolint:containedctx // ends at close: initialisations outlive the calls that begin them
	wait     sync.WaitGroup

	mu      sync.Mutex
	pool    *slots.Pool
	lanes   map[int]*lane
	failed  error         // by which no id will be initialised any more
	trouble error         // of the last initialisation, which is tried again
	changed chan struct{} // closed and replaced at each change
}

func newLanes(bound int, renew bool, deadline time.Duration, logger *slog.Logger, open func(int) (*lane, error)) *lanes {
	l := &lanes{
		open: open, deadline: deadline, logger: logger,
		pool: slots.NewPool(bound, renew), lanes: map[int]*lane{}, changed: make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// ready waits until an id is free without taking it: a check at the start that the broker accepts the settings.
func (l *lanes) ready(ctx context.Context) error {
	return l.await(ctx, func() (bool, error) { return l.pool.Free(), nil })
}

// acquire takes a free lane. It may wait for an initialisation under way, which depends on no barrier, but never for a checkpoint.
func (l *lanes) acquire(ctx context.Context) (*lane, error) {
	var taken *lane
	err := l.await(ctx, func() (bool, error) {
		slot, wait, err := l.pool.Acquire()
		if err != nil || wait {
			return false, err
		}
		taken = l.lanes[slot]
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	taken.begun = false
	taken.tracker.begin()
	return taken, nil
}

// await repeats try, under the lock, until it says yes, fails, or the deadline passes. It keeps the spare ids coming.
func (l *lanes) await(ctx context.Context, try func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, l.deadline)
	defer cancel()
	for {
		l.mu.Lock()
		l.startSpares()
		ok, err := try()
		if ok {
			l.startSpares()
		}
		failed, changed := l.failed, l.changed
		l.mu.Unlock()
		switch {
		case ok || err != nil:
			return err
		case failed != nil:
			return failed
		}
		select {
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			return fmt.Errorf("no transactional id was initialised within %s: %w", l.deadline, cmp.Or(l.trouble, ctx.Err()))
		case <-changed:
		}
	}
}

// startSpares begins the initialisations that the pool asks for. The lock is held.
func (l *lanes) startSpares() {
	if l.ctx.Err() != nil {
		return
	}
	for _, slot := range l.pool.ToStart() {
		l.wait.Add(1)
		go func() {
			defer l.wait.Done()
			l.start(slot)
		}()
	}
}

// start initialises one id.
func (l *lanes) start(slot int) {
	fresh, err := l.initialise(slot)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && l.ctx.Err() == nil:
		l.lanes[slot] = fresh
		l.trouble = nil
		err = l.pool.Started(slot)
	case err == nil:
		fresh.producer.Close()
	}
	if err != nil && l.failed == nil {
		l.failed = err
	}
	l.notify()
}

// initialise makes a client with its id, again and again while nothing is decided: who needs the id waits no longer than the deadline, and
// nobody may need it for long.
func (l *lanes) initialise(slot int) (*lane, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		fresh, err := l.open(slot)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(l.ctx, l.deadline)
		faultpoint.Hit(faultpoint.IDInitDue)
		answer := fresh.producer.Init(ctx)
		cancel()
		after := answers.React(answers.Init, answer)
		if after == answers.Done {
			faultpoint.Hit(faultpoint.IDInitialised)
			return fresh, nil
		}
		fresh.producer.Close()
		err = fmt.Errorf("initialise transactional id %s: %w", fresh.id, answers.Failure(answers.Init, answer, onTransaction("Write", fresh.id)))
		if after != answers.Again {
			return nil, err
		}
		l.mu.Lock()
		l.trouble = err
		l.mu.Unlock()
		if !kafkaconn.Sleep(l.ctx, pause) {
			return nil, err
		}
	}
}

func (l *lanes) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// find returns the lane whose prepared transaction has the id.
func (l *lanes) find(id string) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	for slot, lane := range l.lanes {
		if lane.id == id && l.pool.Pending(slot) && l.pool.Trusted(slot) {
			return lane
		}
	}
	return nil
}

// age returns for how long the prepared transaction with the id has been open at most; known is false for one of another process.
func (l *lanes) age(id string) (age time.Duration, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for slot, lane := range l.lanes {
		if lane.id == id && l.pool.Pending(slot) {
			return time.Since(lane.started), true
		}
	}
	return 0, false
}

// over reports whether what was prepared with an id of this process has been committed.
func (l *lanes) over(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for slot, lane := range l.lanes {
		if lane.id == id {
			return !l.pool.Pending(slot)
		}
	}
	return false
}

func (l *lanes) putBack(lane *lane) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pool.PutBack(lane.slot)
}

func (l *lanes) prepared(lane *lane) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pool.Prepared(lane.slot)
}

// distrust gives up the client of a lane whose own commit left doubt.
func (l *lanes) distrust(lane *lane) {
	l.mu.Lock()
	l.pool.Distrust(lane.slot)
	l.mu.Unlock()
	lane.producer.Close()
}

// committed notes that the transaction with the id is visible.
func (l *lanes) committed(id string) error {
	return l.step(id, l.pool.Committed)
}

// release frees the id of a committed transaction.
func (l *lanes) release(id string) error {
	var stale Producer
	err := l.step(id, func(slot int) error {
		renew, err := l.pool.Release(slot)
		if renew {
			stale = l.lanes[slot].producer
			delete(l.lanes, slot)
		}
		l.startSpares()
		l.notify()
		return err
	})
	faultpoint.Hit(faultpoint.IDReleased)
	if stale != nil {
		stale.Close()
	}
	return err
}

func (l *lanes) step(id string, do func(slot int) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for slot, lane := range l.lanes {
		if lane.id == id {
			return do(slot)
		}
	}
	return fmt.Errorf("%w: %s is not in the pool", slots.ErrState, id)
}

func (l *lanes) close() {
	l.cancel()
	l.wait.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.lanes {
		lane.producer.Close()
	}
	clear(l.lanes)
}

// refusedTimeout turns the broker's refusal of a transaction timeout into an error that names both values.
func refusedTimeout(err error, asked time.Duration) error {
	if !answers.TimeoutRefused(err) {
		return err
	}
	return operator.Fatal(fmt.Errorf("transaction timeout %s: the broker refuses it, its transaction.max.timeout.ms is lower; lower the sink's transaction timeout or raise the broker's limit: %w", asked, err))
}
