package fetch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Config configures a Fetcher.
type Config struct {
	// Client carries the requests; its consumer is not used. The caller closes it after the fetcher.
	Client *kgo.Client
	// Memory bounds the bytes of answers that are not given back, as they arrived; a larger batch arrives all the same.
	Memory int64
	// Total and Partition bound the bytes of one answer, and of one partition in it.
	Total, Partition int32
	// Deadline bounds requests that answer at once.
	Deadline time.Duration
	Logger   *slog.Logger
	// Now tells the time of what is told about the ends of partitions.
	Now func() time.Time
}

// ErrTruncated is about a partition that ends before what was read of it already, or holds something else there.
var ErrTruncated = errors.New("the partition was cut off before what was read")

// Answer is what a broker answered, or what was found out about a partition. It is to be given back with Release.
type Answer struct {
	Parts []Part
	// Err is an error that is about no partition. Nothing comes any more from the broker that it came from.
	Err   error
	from  *broker
	bytes int64
}

// Part is what an answer tells of a partition.
type Part struct {
	Partition *Partition
	Batches   []Batch
	// Next is the offset that is read on from after the batches, and Epoch that of the leader that wrote what is before it, or -1 when
	// that is not known.
	Next  int64
	Epoch int32
	// High is the high watermark as of AsOf, -1 when it is not known.
	High int64
	AsOf time.Time
	// Err is nil or an error after which the partition is not read on until it is moved.
	Err error
}

// Fetcher reads partitions from their leaders.
type Fetcher struct {
	cfg          Config
	decompressor kgo.Decompressor
	ctx          context.Context //nolint:containedctx // ends at Close: requests outlive the calls that take their answers
	cancel       context.CancelFunc
	done         sync.WaitGroup
	ready        chan struct{} // of size 1: full when the queue may hold something
	look         chan struct{} // of size 1: full when leaders have to be asked for

	mu      sync.Mutex
	topics  map[string]*topic
	places  map[place]*Partition
	brokers map[int32]*broker
	listed  map[int32]bool // brokers that metadata told of last
	queue   []*Answer
	used    int64 // bytes of answers that are not given back
	asked   int64 // bytes that requests under way may bring
}

// New makes a fetcher, which reads nothing yet.
func New(cfg Config) *Fetcher {
	d, _ := cfg.Client.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	if d == nil {
		d = kgo.DefaultDecompressor()
	}
	f := &Fetcher{
		cfg: cfg, decompressor: d, ready: make(chan struct{}, 1), look: make(chan struct{}, 1),
		topics: map[string]*topic{}, places: map[place]*Partition{}, brokers: map[int32]*broker{},
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.done.Go(f.lead)
	return f
}

// Decompressor returns what batches are to be opened with.
func (f *Fetcher) Decompressor() kgo.Decompressor { return f.decompressor }

// Close ends all requests and waits for the fetcher's goroutines.
func (f *Fetcher) Close() {
	f.cancel()
	f.done.Wait()
}

// Add begins to read a partition at an offset. Where the epoch of the leader that wrote what is before it is known, which is -1 otherwise, the
// leader of today is asked first whether it has that.
func (f *Fetcher) Add(topicName string, id [16]byte, index int32, next int64, epoch int32) *Partition {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.topics[topicName]
	if t == nil {
		t = &topic{name: topicName, id: id}
		f.topics[topicName] = t
	}
	p := &Partition{topic: t, index: index, next: next, leader: noLeader, leaderEpoch: -1, readEpoch: epoch, high: -1}
	t.partitions = append(t.partitions, p)
	f.places[place{topic: topicName, index: index}] = p
	f.places[place{id: id, index: index}] = p
	poke(f.look)
	return p
}

// Move reads a partition on after an error about it, from the given offset.
func (f *Fetcher) Move(p *Partition, next int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.next, p.stopped, p.fails, p.readEpoch, p.validate = next, false, 0, -1, false
	f.wakeLeader(p)
}

// Ready returns a channel that has an entry when Take may have something to return.
func (f *Fetcher) Ready() <-chan struct{} { return f.ready }

// Take returns the next answer, or nil when there is none. Answers come in the order of each partition's offsets.
func (f *Fetcher) Take() *Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return nil
	}
	a := f.queue[0]
	f.queue[0] = nil
	f.queue = f.queue[1:]
	if len(f.queue) > 0 {
		poke(f.ready)
	}
	if a.from != nil {
		a.from.waiting--
		poke(a.from.wake)
	}
	return a
}

// Release gives an answer back: its batches do not count as memory any more.
func (f *Fetcher) Release(a *Answer) {
	if a.bytes == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used -= a.bytes
	a.from.used -= a.bytes
	a.bytes = 0
	for _, b := range f.brokers {
		if b.starved {
			poke(b.wake)
		}
	}
}

// Silent returns the partitions of which nothing was heard since the given time, and the earliest time that something was heard of any.
func (f *Fetcher) Silent(since time.Time) (silent []*Partition, earliest time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.topics {
		for _, p := range t.partitions {
			if p.heard.Before(since) {
				silent = append(silent, p)
			}
			if earliest.IsZero() || p.heard.Before(earliest) {
				earliest = p.heard
			}
		}
	}
	return silent, earliest
}

// put adds an answer to the queue.
func (f *Fetcher) put(a *Answer) {
	f.queue = append(f.queue, a)
	poke(f.ready)
}

// tell puts an error about a partition into the queue and stops it.
func (f *Fetcher) tell(p *Partition, err error) {
	p.stopped = true
	f.put(&Answer{Parts: []Part{{Partition: p, Next: p.next, Epoch: p.readEpoch, High: -1, Err: err}}})
}

// wakeLeader has the broker that leads a partition look for what to read.
func (f *Fetcher) wakeLeader(p *Partition) {
	if b := f.brokers[p.leader]; b != nil {
		poke(b.wake)
	}
}

// poke fills a channel of size 1.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
