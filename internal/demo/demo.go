package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/internal/orders"
)

// The cluster of the demo.
const (
	jobManagers  = 3
	taskManagers = 2
	// slots of each TaskManager: one alone can run the job while the other is down.
	slots       = parallelism
	parallelism = 2

	startTimeout = 60 * time.Second
	// firstKill is how long results flow before the first kill; calm is the time between a recovery and the next kill.
	firstKill = 3 * time.Second
	calm      = 3 * time.Second
	// restartAfter is when a killed process is started again, as a supervisor would.
	restartAfter = time.Second
	// silence ends the wait for missing results: nothing came for so long after the last order.
	silence = 45 * time.Second
	// settle is how long the output is still watched for duplicates after the last expected result, in checkpoint intervals.
	settle = 3
)

// Demo is one run.
type Demo struct {
	o       Options
	input   orders.Stream
	topics  orders.Topics
	cluster *localcluster.Cluster
	jobs    *jobs
	began   time.Time

	produced atomic.Uint64
	done     atomic.Bool // every order is produced

	mu     sync.Mutex
	ledger *orders.Ledger
	gaps   gaps
	kills  []Kill
	note   string // what happens now, for the account
}

// Run runs the demo to its end. The report is valid when the error is nil; whether the answer is right is for Report.Right to say.
func Run(ctx context.Context, o Options) (_ Report, err error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	d := &Demo{o: o, note: "starting"}
	broker, err := openBroker(o.Brokers)
	if err != nil {
		return Report{}, err
	}
	defer broker.close()
	if err := d.start(ctx, broker); err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, d.jobs.close(), d.cluster.Close()) }()
	if err := d.run(ctx); err != nil {
		return Report{}, err
	}
	return d.report(), nil
}

// start brings up topics, cluster and job.
func (d *Demo) start(ctx context.Context, b *broker) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	run := fmt.Sprintf("weir-demo-%d", time.Now().UnixNano())
	d.topics = orders.Topics{Brokers: b.addresses, Orders: run + "-orders", Totals: run + "-totals", Replication: 1}
	if err := d.topics.Create(ctx); err != nil {
		return err
	}
	d.logf("starting %d JobManagers and %d TaskManagers", jobManagers, taskManagers)
	d.cluster, err = localcluster.Start(ctx, localcluster.Config{
		Binary: d.o.Binary, Dir: d.o.Dir, JobManagers: jobManagers, TaskManagers: taskManagers, Slots: slots,
	})
	if err != nil {
		return err
	}
	d.jobs = newJobs(d.o.Binary, d.cluster)
	if err := d.jobs.submit(ctx, d.topics, d.o.Interval); err != nil {
		return errors.Join(err, d.jobs.close(), d.cluster.Close())
	}
	d.logf("job %s runs", d.jobs.id)
	return nil
}

// run feeds the job, kills processes and reads the results, until all are in or none come any more.
func (d *Demo) run(ctx context.Context) error {
	d.began = time.Now()
	d.input = orders.Stream{Orders: d.o.Records, Rate: d.o.Rate, Base: d.began.Truncate(orders.Window).UnixMilli()}
	d.ledger = orders.NewLedger(d.input.Expected())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := d.topics.Produce(ctx, d.input, &d.produced)
		d.done.Store(err == nil)
		return err
	})
	g.Go(func() error { return d.topics.Read(ctx, d.take) })
	g.Go(func() error { return d.account(ctx) })
	g.Go(func() error {
		if err := d.disturb(ctx); err != nil {
			return err
		}
		if err := d.await(ctx); err != nil {
			return err
		}
		err := d.jobs.cancel(ctx)
		cancel()
		return err
	})
	err := g.Wait()
	if errors.Is(err, context.Canceled) && d.done.Load() {
		err = nil
	}
	return err
}

// take files one committed result.
func (d *Demo) take(t orders.Total) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.ledger.Add(t, now)
	d.gaps.output(now)
}

// await waits until every order is produced and every result was read, and a little longer, for duplicates.
func (d *Demo) await(ctx context.Context) error {
	var finished time.Time
	for {
		d.mu.Lock()
		complete, last := d.ledger.Complete(), d.ledger.LastOutput
		d.mu.Unlock()
		now := time.Now()
		switch {
		case !d.done.Load():
			d.say("waiting for the rest of the orders")
			finished = now
		case complete || now.Sub(last) > silence && now.Sub(finished) > silence:
			d.mu.Lock()
			d.gaps.end(last)
			d.mu.Unlock()
			return sleep(ctx, settle*d.o.Interval)
		default:
			d.say("waiting for the last results")
		}
		if err := d.jobs.refresh(ctx); err != nil {
			return err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func (d *Demo) report() Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	view := d.jobs.view()
	r := Report{
		Produced: d.produced.Load(), ExpectedWindows: d.ledger.Results(), Missing: d.ledger.Missing(), Duplicated: d.ledger.Duplicated,
		Wrong: len(d.ledger.Wrong()), Kills: d.kills, Checkpoints: view.GetCompletedCheckpoints(), JobRestarts: view.GetRestarts(),
		DurationMS: d.ledger.LastOutput.Sub(d.began).Milliseconds(),
	}
	if r.Kills == nil {
		r.Kills = []Kill{}
	}
	for i := range r.Kills {
		r.Kills[i].GapMS = d.gaps.phases[i].Milliseconds()
	}
	return r
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
