package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/test/harness"
	"github.com/weir-stream/weir/test/robustness/sequences"
)

// input feeds one job and keeps the account of its output.
type input interface {
	args() []string
	output() string // the topic
	topics() []string
	whileQuiet(do func())
	finished() bool
	// problem tells what is wrong with the output so far.
	problem() error
	// settle ends the input and waits until the output is complete and right.
	settle(timeout time.Duration)
}

// life is one job with its input. Its id changes when it is stopped and goes on from there.
type life struct {
	w           *world
	name        string
	shape       string
	client      string
	settings    []string
	input       input
	id          string
	parallelism int
	round       int
	checkpoints *harness.CheckpointWatch
}

func (l *life) String() string { return fmt.Sprintf("%s (%s, %s)", l.id, l.shape, l.client) }

var shapes = []string{"orders", string(sequences.PassThrough), string(sequences.Counted), string(sequences.Merged)}

// bear submits a job of a shape with an input of its own, which lasts as long as the window.
func (w *world) bear(rnd *rand.Rand, shape string, window time.Duration) *life {
	l := &life{
		w: w, shape: shape, name: fmt.Sprintf("%s-%d", shape, rnd.Uint32()), client: pick(rnd, w.clients), parallelism: 1 + rnd.IntN(3),
		settings: []string{
			"--max-restarts", "1000000", "--interval", pick(rnd, []string{"300ms", "1s", "2s"}),
			"--checkpoint-timeout", pick(rnd, []string{"10s", "30s"}),
		},
	}
	if shape == "orders" {
		l.input = &orderInput{w.c.StartOrders(uint64((window+5*time.Second).Seconds())*rate, rate)}
	} else {
		l.input = w.feed(sequences.Shape(shape), rnd.Uint64())
	}
	r, err := l.submit()
	require.NoError(w.t, err)
	require.Zero(w.t, r.Code, "%s", r.Stderr)
	w.c.WaitState(l.id, "RUNNING", time.Minute)
	w.note("%s runs with parallelism %d, %v", l, l.parallelism, l.settings)
	return l
}

// submit starts the job, from is where from.
func (l *life) submit(from ...string) (harness.Result, error) {
	for {
		l.round++
		args := append([]string{"submit", "-p", fmt.Sprint(l.parallelism), "--name", l.name}, from...)
		args = append(args, l.w.c.Binaries.Job, "--", "--brokers", l.w.c.Broker.Addr(), "--shape", l.shape, "--client", l.client)
		args = append(append(args, l.settings...), l.input.args()...)
		r, err := l.w.ask(fmt.Sprintf("%s-submit-%d", l.name, l.round), args...)
		if err == nil && r.Code == 1 && transient(r.Stderr) {
			continue // refused before anything was changed
		}
		if err == nil && (r.Code == 0 || r.Code == 4) {
			l.id = strings.TrimSpace(r.Stdout)
			l.checkpoints = l.w.c.WatchCheckpoints(l.id)
		}
		return r, err
	}
}

// transient reports whether a submission was refused for what passes by itself: nobody could plan the job just then.
func transient(message string) bool {
	for _, why := range []string{"no TaskManager is connected", "plan"} {
		if strings.Contains(message, why) {
			return true
		}
	}
	return false
}

// succeed ends the job, which then goes on from where it was, perhaps with another parallelism.
func (l *life) succeed(rnd *rand.Rand) error {
	release, ok := l.w.claim(l.name)
	if !ok {
		return nil
	}
	defer release()
	l.round++
	request := fmt.Sprintf("%s-end-%d", l.name, l.round)
	old := l.id
	var from string
	if rnd.IntN(2) == 0 {
		r, err := l.w.ask(request, "stop", old, "--savepoint", "file://"+l.w.c.Dir+"/savepoints")
		if err != nil || r.Code != 0 {
			l.w.note("%s is not stopped: %s", l, strings.TrimSpace(r.Stderr))
			return err
		}
		from, _, _ = strings.Cut(r.Stdout, "\n")
	} else {
		r, err := l.w.ask(request, "stop", old)
		if err != nil || r.Code != 0 {
			l.w.note("%s is not stopped: %s", l, strings.TrimSpace(r.Stderr))
			return err
		}
		n, err := l.lastCheckpoint()
		if err != nil {
			return err
		}
		from = fmt.Sprintf("%s@%d", old, n)
	}
	l.parallelism = 1 + rnd.IntN(3)
	r, err := l.submit("--from", from)
	if err != nil {
		return err
	}
	if r.Code != 0 && r.Code != 4 {
		return fmt.Errorf("%s does not go on from %s: %s", old, from, r.Stderr)
	}
	l.w.note("%s goes on from %s with parallelism %d", l, from, l.parallelism)
	return nil
}

// orderInput feeds orders and checks their totals.
type orderInput struct{ run *harness.OrderRun }

func (o *orderInput) args() []string               { return o.run.Args() }
func (o *orderInput) output() string               { return o.run.Topics.Totals }
func (o *orderInput) topics() []string             { return []string{o.run.Topics.Orders, o.run.Topics.Totals} }
func (o *orderInput) whileQuiet(do func())         { o.run.WhileQuiet(do) }
func (o *orderInput) finished() bool               { return o.run.Finished() }
func (o *orderInput) settle(timeout time.Duration) { o.run.RequireExactlyOnce(timeout) }
func (o *orderInput) problem() error               { return o.run.Problem() }

// sequenceInput feeds numbered records and checks the results.
type sequenceInput struct {
	t     *testing.T
	in    []string
	out   string
	quiet chan func()
	end   chan struct{}

	mu        sync.Mutex
	generator *sequences.Generator
	account   *sequences.Account
	done      bool
	err       error
}

// feed makes the topics of a job and begins to write and to read them.
func (w *world) feed(shape sequences.Shape, seed uint64) *sequenceInput {
	s := &sequenceInput{
		t: w.t, quiet: make(chan func()), end: make(chan struct{}),
		generator: sequences.NewGenerator(shape, seed), account: sequences.NewAccount(shape),
	}
	for range shape.Inputs() {
		s.in = append(s.in, w.c.Topic(sequences.Partitions, nil))
	}
	s.out = w.c.Topic(sequences.Partitions, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	w.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	brokers := []string{w.broker.Direct()}
	failed := func(err error) {
		if err != nil && ctx.Err() == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.err = errors.Join(s.err, err)
		}
	}
	wg.Go(func() {
		failed(sequences.Produce(ctx, sequences.Load{
			Brokers: brokers, Topics: s.in, Rate: rate, Seed: seed, Quiet: s.quiet, End: s.end,
		}, s.generator))
		s.mu.Lock()
		s.done = true
		s.mu.Unlock()
		for {
			select {
			case do := <-s.quiet:
				do()
			case <-ctx.Done():
				return
			}
		}
	})
	wg.Go(func() {
		failed(sequences.Read(ctx, brokers, s.out, func(partition int32, offset int64, r sequences.Result) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.account.Add(partition, offset, r)
		}))
	})
	return s
}

func (s *sequenceInput) args() []string {
	return []string{"--in", strings.Join(s.in, ","), "--out", s.out}
}
func (s *sequenceInput) output() string   { return s.out }
func (s *sequenceInput) topics() []string { return append([]string{s.out}, s.in...) }

func (s *sequenceInput) whileQuiet(do func()) {
	done := make(chan struct{})
	s.quiet <- func() {
		defer close(done)
		do()
	}
	<-done
}

func (s *sequenceInput) finished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

func (s *sequenceInput) problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.account.Problems) > 0 {
		return fmt.Errorf("%s:\n%s", s.out, strings.Join(s.account.Problems, "\n"))
	}
	return s.err
}

func (s *sequenceInput) settle(timeout time.Duration) {
	close(s.end)
	harness.Eventually(s.t, timeout, "every result", func() error {
		if err := s.problem(); err != nil {
			return nil // told below
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.done {
			return errors.New("the input does not end")
		}
		if missing, example := s.account.Missing(s.generator.Made()); missing > 0 {
			return fmt.Errorf("%d results are missing, %d are there; missing is %s", missing, s.account.Results, example)
		}
		return nil
	})
	require.NoError(s.t, s.problem())
}
