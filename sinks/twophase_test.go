package sinks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a transactional sink in memory whose answers the test chooses.
type fake struct {
	mu      sync.Mutex
	calls   []string
	answers map[string][]error // by committable, consumed from the front
	failure map[string]error   // by call
	next    int
}

func (f *fake) call(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := fmt.Sprintf(format, args...)
	f.calls = append(f.calls, c)
	return f.failure[c]
}

func (f *fake) log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

func (f *fake) answer(c sinks.Committable) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	as := f.answers[string(c.Payload)]
	if len(as) == 0 {
		return nil
	}
	f.answers[string(c.Payload)] = as[1:]
	return as[0]
}

func (f *fake) Open(context.Context, sinks.Context) error { return f.call("open") }
func (f *fake) Begin(context.Context) (int, error) {
	f.next++
	return f.next, f.call("begin %d", f.next)
}

func (f *fake) Write(_ context.Context, txn int, v int, _ int64) error {
	return f.call("write %d %d", txn, v)
}

func (f *fake) PreCommit(_ context.Context, txn int) (sinks.Committable, error) {
	return sinks.Committable{Version: 1, Payload: fmt.Appendf(nil, "%d", txn)}, f.call("prepare %d", txn)
}

func (f *fake) Commit(_ context.Context, c sinks.Committable) error {
	return errors.Join(f.call("commit %s", c.Payload), f.answer(c))
}
func (f *fake) Abort(_ context.Context, txn int) error { return f.call("abort %d", txn) }
func (f *fake) RecoverCommit(_ context.Context, cs []sinks.Committable) error {
	return errors.Join(f.call("recover %d", len(cs)), f.answer(cs[0]))
}
func (f *fake) RecoverAbort(context.Context, operator.Scope) error { return f.call("fence") }
func (f *fake) Close() error                                       { return f.call("close") }
func (f *fake) Release(c sinks.Committable)                        { _ = f.call("release %s", c.Payload) }

func (f *fake) Prove(_ context.Context, pending []sinks.Committable, _ time.Duration) error {
	return f.call("prove %d", len(pending))
}

type clock struct{}

func (clock) Now() time.Time { return time.Now() }

func open(t *testing.T, f *fake) operator.Instance {
	t.Helper()
	return openWith(t, f, sinks.TwoPhaseConfig[int, int]{}, slog.New(slog.DiscardHandler))
}

func openWith(t *testing.T, f *fake, cfg sinks.TwoPhaseConfig[int, int], logger *slog.Logger, stats ...*operator.Stats) operator.Instance {
	t.Helper()
	stats = append(stats, &operator.Stats{})
	cfg.Kind, cfg.RetryLimit = "fake", 10*time.Second
	cfg.New = func() (sinks.TwoPhaseCommitSink[int, int], error) { return f, nil }
	sink := sinks.TwoPhase(cfg)
	require.False(t, sink.Supports(graph.AtLeastOnce))
	instance, err := sink.NewInstance(graph.ExactlyOnce)
	require.NoError(t, err)
	require.NoError(t, instance.Open(t.Context(), &operator.Runtime{
		Operator: graph.Operator{UID: "out"}, Clock: clock{}, Logger: logger, Stats: stats[0],
	}))
	return instance
}

func collect(t *testing.T, i operator.Instance, v int) {
	t.Helper()
	require.NoError(t, i.Input().(operator.Collector[int]).Collect(v, operator.NoTimestamp))
}

func barrier(t *testing.T, i operator.Instance, n uint64) []uint64 {
	t.Helper()
	finish, err := i.Snapshot(t.Context(), operator.Barrier{Checkpoint: n})
	require.NoError(t, err)
	s, err := finish(t.Context())
	require.NoError(t, err)
	var out []uint64
	for _, c := range s.GetCommittables() {
		out = append(out, c.GetCheckpoint())
	}
	return out
}

func commit(i operator.Instance, n uint64) error {
	done := make(chan error, 1)
	i.(operator.Committer).Commit(n, func(err error) { done <- err })
	return <-done
}

func TestDriverCallsInOrder(t *testing.T) {
	f := &fake{}
	i := open(t, f)
	require.Empty(t, barrier(t, i, 1), "an interval without records begins nothing")
	collect(t, i, 7)
	collect(t, i, 8)
	require.Equal(t, []uint64{2}, barrier(t, i, 2))
	collect(t, i, 9)
	require.Equal(t, []uint64{2, 3}, barrier(t, i, 3))
	require.NoError(t, commit(i, 3))
	require.Empty(t, barrier(t, i, 4))
	require.NoError(t, commit(i, 4))
	collect(t, i, 10)
	require.NoError(t, i.Close())
	require.Equal(t, []string{
		"open", "begin 1", "write 1 7", "write 1 8", "prepare 1", "prove 1", "begin 2", "write 2 9", "prepare 2", "prove 2",
		"commit 1", "commit 2", "release 1", "release 2", "begin 3", "write 3 10", "abort 3", "close",
	}, f.log())
}

// A restore hands over what the checkpoint lists, repeats it until it is decided, and only then ends what former attempts left.
func TestRestoreCommitsAndFences(t *testing.T) {
	f := &fake{answers: map[string][]error{"1": {sinks.ErrRetriable}}}
	i := open(t, f)
	c := i.(operator.Committer)
	require.NoError(t, c.RecoverCommit(t.Context(), nil), "nothing is listed")
	require.NoError(t, c.RecoverCommit(t.Context(), []*snapshotv1.Committable{
		{Checkpoint: 3, Version: 1, Payload: []byte("1")}, {Checkpoint: 4, Version: 1, Payload: []byte("2")},
	}))
	require.NoError(t, c.RecoverAbort(t.Context(), operator.Scope{}))
	require.NoError(t, i.Close())
	require.Equal(t, []string{"open", "recover 2", "recover 2", "fence", "close"}, f.log())
}

func TestFailedWriteOrFlushFailsTheTask(t *testing.T) {
	broken := errors.New("broken")
	for _, call := range []string{"begin 1", "write 1 7", "prepare 1", "prove 1"} {
		t.Run(call, func(t *testing.T) {
			f := &fake{failure: map[string]error{call: broken}}
			i := open(t, f)
			err := i.Input().(operator.Collector[int]).Collect(7, operator.NoTimestamp)
			if err == nil {
				_, err = i.Snapshot(t.Context(), operator.Barrier{Checkpoint: 1})
			}
			require.ErrorIs(t, err, broken)
			require.NoError(t, i.Close())
		})
	}
}

func TestCommitIsRepeatedUntilDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answers: map[string][]error{"1": {sinks.ErrRetriable, errors.New("anything else"), nil}}}
		i := open(t, f)
		collect(t, i, 7)
		barrier(t, i, 1)
		require.NoError(t, commit(i, 1))
		require.NoError(t, i.Close())
		n := 0
		for _, c := range f.log() {
			if c == "commit 1" {
				n++
			}
		}
		require.Equal(t, 3, n)
	})
}

// Whoever asks what a sink waits for learns how the last of many tries ended.
func TestWaitTellsTheLastTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left")
		f := &fake{failure: map[string]error{"fence": full}, answers: map[string][]error{"1": {full, full, full, nil}}}
		stats := &operator.Stats{}
		i := openWith(t, f, sinks.TwoPhaseConfig[int, int]{Target: "the disk"}, slog.New(slog.DiscardHandler), stats)
		current := func() operator.Wait {
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			waits := stats.Waits.Current()
			require.Len(t, waits, 1)
			return waits[0]
		}
		ended := make(chan error, 1)
		go func() { ended <- i.(operator.Committer).RecoverAbort(t.Context(), operator.Scope{Parallelism: 1}) }()
		wait := current()
		require.Equal(t, "the disk to end what former attempts left open", wait.What)
		require.Equal(t, full, wait.Last)
		require.ErrorIs(t, <-ended, full)
		collect(t, i, 7)
		barrier(t, i, 1)
		i.(operator.Committer).Commit(1, func(err error) { ended <- err })
		require.ErrorIs(t, current().Last, full)
		require.NoError(t, <-ended)
		require.NoError(t, i.Close())
		require.Empty(t, stats.Waits.Current())
	})
}

func TestUndecidedCommitEndsWithTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make([]error, 1000)
		for i := range stuck {
			stuck[i] = sinks.ErrRetriable
		}
		f := &fake{answers: map[string][]error{"1": stuck}}
		i := open(t, f)
		collect(t, i, 7)
		barrier(t, i, 1)
		begin := time.Now()
		err := commit(i, 1)
		require.ErrorIs(t, err, sinks.ErrRetriable)
		require.Equal(t, operator.ClassUnavailable, operator.ClassOf(err))
		require.Equal(t, 10*time.Second, time.Since(begin))
		require.NoError(t, i.Close())
	})
}

func TestErrorOfOneCommitLeavesTheOthersToBeTried(t *testing.T) {
	fatal := operator.Fatal(errors.New("no right"))
	f := &fake{answers: map[string][]error{"1": {fatal}}}
	i := open(t, f)
	for n := range uint64(2) {
		collect(t, i, 7)
		barrier(t, i, n+1)
	}
	err := commit(i, 2)
	require.ErrorContains(t, err, "no right")
	require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
	require.Contains(t, f.log(), "commit 2")
	require.Error(t, commit(i, 2), "a later notice does not hide the first one's failure")
	require.NoError(t, i.Close())
}

// Where a later transaction replaces what an earlier one wrote, a restore must not bring the earlier one last.
func TestErrorOfOneCommitStopsTheOthersWhereOrderCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make([]error, 1000)
		for i := range stuck {
			stuck[i] = sinks.ErrRetriable
		}
		for name, answers := range map[string][]error{"fatal": {operator.Fatal(errors.New("no right"))}, "undecided": stuck} {
			f := &fake{answers: map[string][]error{"1": answers}}
			i := openWith(t, f, sinks.TwoPhaseConfig[int, int]{Ordered: true}, slog.New(slog.DiscardHandler))
			for n := range uint64(2) {
				collect(t, i, 7)
				barrier(t, i, n+1)
			}
			require.ErrorIs(t, commit(i, 2), answers[0], name)
			collect(t, i, 7)
			require.Equal(t, []uint64{1, 2, 3}, barrier(t, i, 3), name)
			require.ErrorContains(t, commit(i, 3), "an earlier commit ended with an error", name)
			require.NotContains(t, f.log(), "commit 2", name)
			require.NotContains(t, f.log(), "commit 3", name)
			require.NoError(t, i.Close())
		}
	})
}

func TestLossStopsLaterCommits(t *testing.T) {
	f := &fake{answers: map[string][]error{"1": {&sinks.LostError{Transaction: "t", Detail: "topic/0 offsets 1 to 2"}}}}
	i := open(t, f)
	for n := range uint64(2) {
		collect(t, i, 7)
		barrier(t, i, n+5)
	}
	err := commit(i, 6)
	require.ErrorIs(t, err, sinks.ErrLost)
	require.Equal(t, operator.ClassDataLoss, operator.ClassOf(err))
	var lost *sinks.LostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, &sinks.LostError{Sink: "out", Checkpoint: 5, Transaction: "t", Detail: "topic/0 offsets 1 to 2"}, lost)
	require.NotContains(t, f.log(), "commit 2")
	require.NoError(t, i.Close())
}

func TestUnknownOutcomeStopsTheJob(t *testing.T) {
	f := &fake{answers: map[string][]error{"1": {sinks.ErrUnknown}}}
	i := open(t, f)
	collect(t, i, 7)
	barrier(t, i, 1)
	err := commit(i, 1)
	require.ErrorIs(t, err, sinks.ErrUnknown)
	require.Equal(t, operator.ClassDataLoss, operator.ClassOf(err))
	require.NoError(t, i.Close())
}

func TestCloseAnswersPendingCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := []error{sinks.ErrRetriable, sinks.ErrRetriable, sinks.ErrRetriable, sinks.ErrRetriable}
		f := &fake{answers: map[string][]error{"1": stuck}}
		i := open(t, f)
		collect(t, i, 7)
		barrier(t, i, 1)
		answers := make(chan error, 2)
		for range 2 {
			i.(operator.Committer).Commit(1, func(err error) { answers <- err })
		}
		synctest.Wait()
		require.NoError(t, i.Close())
		require.Error(t, <-answers)
		require.Error(t, <-answers)
		i.(operator.Committer).Commit(1, func(err error) { answers <- err })
		require.Error(t, <-answers)
	})
}

// A sink that closes asks for nothing more, and does not blame the time that a commit may take.
func TestCloseDuringACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		f := &fake{answers: map[string][]error{"1": {sinks.ErrRetriable}}}
		i := openWith(t, f, sinks.TwoPhaseConfig[int, int]{}, slog.New(slog.NewTextHandler(&out, nil)))
		for n := range uint64(3) {
			collect(t, i, 7)
			barrier(t, i, n+1)
		}
		answers := make(chan error, 2)
		for n := range uint64(2) {
			i.(operator.Committer).Commit(n+2, func(err error) { answers <- err })
		}
		synctest.Wait() // the first commit waits to be repeated
		require.NoError(t, i.Close())
		err := <-answers
		require.ErrorIs(t, err, sinks.ErrRetriable)
		require.ErrorContains(t, err, "not tried again: context canceled")
		require.NotContains(t, err.Error(), "given up after")
		require.Error(t, <-answers)
		require.NotContains(t, f.log(), "commit 2")
		require.NotContains(t, f.log(), "commit 3")
		require.Empty(t, out.String())
	})
}

func TestCloseWithoutOpen(t *testing.T) {
	sink := sinks.TwoPhase(sinks.TwoPhaseConfig[int, int]{New: func() (sinks.TwoPhaseCommitSink[int, int], error) { return &fake{}, nil }})
	i, err := sink.NewInstance(graph.ExactlyOnce)
	require.NoError(t, err)
	require.NoError(t, i.Close())
	_, err = sink.NewInstance(graph.AtLeastOnce)
	require.Error(t, err)
}

// writer is a plain sink in memory.
type writer struct {
	out     []int
	flushed int
	fail    error
}

func (w *writer) Open(context.Context, sinks.Context) error     { return nil }
func (w *writer) Write(_ context.Context, v int, _ int64) error { w.out = append(w.out, v); return nil }
func (w *writer) Flush(context.Context) error                   { w.flushed++; return w.fail }
func (w *writer) Close() error                                  { return nil }

func TestPlainSinkFlushesAtBarriersForAtLeastOnceOnly(t *testing.T) {
	for guarantee, flushes := range map[graph.Guarantee]int{graph.AtLeastOnce: 1, graph.None: 0} {
		w := &writer{}
		sink := sinks.Plain(sinks.PlainConfig[int]{Kind: "memory", New: func() (sinks.Writer[int], error) { return w, nil }})
		require.False(t, sink.Supports(graph.ExactlyOnce))
		_, err := sink.NewInstance(graph.ExactlyOnce)
		require.Error(t, err)
		i, err := sink.NewInstance(guarantee)
		require.NoError(t, err)
		stats := &operator.Stats{}
		require.NoError(t, i.Open(t.Context(), &operator.Runtime{Clock: clock{}, Stats: stats}))
		collect(t, i, 7)
		_, err = i.Snapshot(t.Context(), operator.Barrier{Checkpoint: 1})
		require.NoError(t, err)
		require.Equal(t, flushes, w.flushed)
		require.EqualValues(t, 1, stats.Out.Load())
		require.NoError(t, i.EndInput())
		require.Equal(t, flushes+1, w.flushed)
		w.fail = errors.New("broken")
		_, err = i.Snapshot(t.Context(), operator.Barrier{Checkpoint: 2})
		require.Equal(t, guarantee == graph.AtLeastOnce, errors.Is(err, w.fail))
		require.NoError(t, i.Close())
	}
}

func TestCollectAllocatesNothing(t *testing.T) {
	w := &discard{}
	i, err := sinks.Plain(sinks.PlainConfig[int]{New: func() (sinks.Writer[int], error) { return w, nil }}).NewInstance(graph.None)
	require.NoError(t, err)
	require.NoError(t, i.Open(t.Context(), &operator.Runtime{Clock: clock{}, Stats: &operator.Stats{}}))
	in := i.Input().(operator.Collector[int])
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = in.Collect(1, 0) }))
	require.NoError(t, i.Close())
}

type discard struct{ writer }

func (d *discard) Write(context.Context, int, int64) error { return nil }
