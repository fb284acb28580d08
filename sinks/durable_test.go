package sinks_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sources"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/taskmanager/worker/snapshot"
)

// durableSink opens an attempt of a sink with durable output.
func durableSink(t require.TestingT, s *modelSink, store statebackend.SegmentStore, dir string, attempt uint64) (operator.Rewriter, error) {
	instance, err := sinks.TwoPhase(sinks.TwoPhaseConfig[int, int]{
		Kind: "model", RetryLimit: time.Second, DurableOutput: true,
		New: func() (sinks.TwoPhaseCommitSink[int, int], error) { return s, nil },
	}).NewInstance(graph.ExactlyOnce)
	require.NoError(t, err)
	return instance.(operator.Rewriter), instance.Open(context.Background(), &operator.Runtime{
		ClusterID: "c", JobID: "j", Vertex: "v", Attempt: attempt, Parallelism: 1, Operator: graph.Operator{UID: "out"},
		Clock: clock{}, Logger: slog.New(slog.DiscardHandler), Stats: &operator.Stats{}, Segments: store, Dir: dir,
	})
}

// world is a job whose source counts and whose sink writes the numbers, with all that survives a crash.
type world struct {
	t     *rapid.T
	b     modelBroker
	store *memoryStore
	dirs  func() string
	// The log: the last completed checkpoint, its content, and what it needs to be restored.
	completed uint64
	position  int
	tasks     *snapshotv1.TaskSnapshot
	settled   bool
	replaced  []*workerv1.Replacement
	attempt   uint64
	next      uint64 // checkpoint id

	sink     *modelSink
	instance operator.Rewriter
	read     int // by the source of the attempt
	zombies  []zombie
}

type zombie struct {
	instance  operator.Rewriter
	completed uint64
}

func (w *world) check() {
	for i, v := range w.b.visible() {
		require.Equal(w.t, i, v, "each number once and in order: %v", w.b.visible())
	}
}

// disturb aborts something at the broker, or does not.
func (w *world) disturb() {
	if w.sink.fuse > 1<<20 || len(w.b.txns) == 0 || !rapid.Bool().Draw(w.t, "disturb") {
		return
	}
	t := w.b.txns[rapid.IntRange(max(0, len(w.b.txns)-4), len(w.b.txns)-1).Draw(w.t, "abort")]
	if t.state == isOpen {
		t.state = isAborted
	}
}

// alive tells whether an error means the end of the attempt; a loss must never stop the job.
func (w *world) alive(err error) bool {
	if err != nil {
		require.NotEqual(w.t, operator.ClassDataLoss, operator.ClassOf(err), "%v", err)
	}
	w.check()
	return err == nil
}

// restore begins an attempt and takes it as far as it gets.
func (w *world) restore(fuse int, half bool) bool {
	if w.instance != nil {
		w.zombies = append(w.zombies, zombie{w.instance, w.completed})
	}
	w.attempt++
	w.sink = &modelSink{b: &w.b, fuse: fuse, half: half}
	w.instance, w.read = nil, w.position
	instance, err := durableSink(w.t, w.sink, w.store, w.dirs(), w.attempt)
	require.NoError(w.t, err)
	w.instance = instance
	if w.tasks != nil && !w.settled {
		point := w.point()
		require.NoError(w.t, point.Replace(w.replaced))
		w.disturb()
		r, err := instance.RecoverOrRewrite(context.Background(), point.Transactions("out", 0, 1))
		if !w.alive(err) {
			return false
		}
		if r != nil {
			w.disturb()
			if w.sink.fuse <= 0 {
				return false // dies before the entry
			}
			w.replaced, _, err = checkpoint.Replace(w.replaced, []*workerv1.Replacement{r})
			require.NoError(w.t, err)
			w.disturb()
		}
		if !w.alive(instance.CommitRewritten(context.Background())) {
			return false
		}
	}
	w.settled, w.replaced = true, nil
	var former []operator.FormerAttempt
	for a := range w.attempt {
		former = append(former, operator.FormerAttempt{Attempt: a, Parallelism: 1, Slots: 1})
	}
	return w.alive(instance.RecoverAbort(context.Background(), operator.Scope{Parallelism: 1, Attempts: former}))
}

func (w *world) point() *snapshot.Point {
	data, err := proto.Marshal(w.tasks)
	require.NoError(w.t, err)
	meta, err := checkpointfile.Encode(&snapshotv1.CheckpointMetadata{
		FormatVersion: checkpointfile.FormatVersion, Tasks: []*snapshotv1.TaskHandle{{Snapshot: data}},
	})
	require.NoError(w.t, err)
	p, err := snapshot.Read(context.Background(), w.store, &snapshotv1.Segment{Inline: meta})
	require.NoError(w.t, err)
	return p
}

// interval writes some records and takes a checkpoint, which completes or does not.
func (w *world) interval() bool {
	for range rapid.IntRange(0, 3).Draw(w.t, "records") {
		if !w.alive(w.instance.(operator.Instance).Input().(operator.Collector[int]).Collect(w.read, operator.NoTimestamp)) {
			return false
		}
		w.read++
	}
	w.disturb()
	w.next++
	finish, err := w.instance.(operator.Instance).Snapshot(context.Background(), operator.Barrier{Checkpoint: w.next})
	if !w.alive(err) {
		return false
	}
	snap, err := finish(context.Background())
	require.NoError(w.t, err)
	if rapid.IntRange(0, 3).Draw(w.t, "fails") == 0 {
		return true
	}
	// Through the wire, as the log would have it.
	op := proto.CloneOf(snap)
	w.completed, w.position, w.replaced, w.settled = w.next, w.read, nil, false
	w.tasks = &snapshotv1.TaskSnapshot{Vertex: "v", Parallelism: 1, Operators: []*snapshotv1.OperatorSnapshot{op}}
	w.disturb()
	if rapid.IntRange(0, 3).Draw(w.t, "notice lost") == 0 {
		return true
	}
	return w.alive(commit(w.instance.(operator.Instance), w.completed))
}

// TestEachRecordIsVisibleOnce lets a broker abort what it wants and processes die at any call, and looks after each step whether a reader
// sees each record once and in order.
func TestEachRecordIsVisibleOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, store: &memoryStore{dir: t.TempDir()}, dirs: t.TempDir}
		defer w.closeAll()
		for range rapid.IntRange(1, 12).Draw(rt, "attempts") {
			if !w.restore(rapid.IntRange(1, 30).Draw(rt, "fuse"), rapid.Bool().Draw(rt, "half")) {
				continue
			}
			for w.interval() {
				if len(w.zombies) > 0 && rapid.IntRange(0, 4).Draw(rt, "zombie") == 0 {
					z := rapid.SampledFrom(w.zombies).Draw(rt, "which")
					_ = commit(z.instance.(operator.Instance), z.completed)
					w.check()
				}
				if rapid.IntRange(0, 9).Draw(rt, "crash") == 0 {
					break
				}
			}
		}
		// In the end nothing disturbs any more.
		require.True(rt, w.restore(1<<30, false))
		require.Zero(rt, w.b.open())
		require.Len(rt, w.b.visible(), w.position)
	})
}

func (w *world) closeAll() {
	for _, z := range w.zombies {
		_ = z.instance.(operator.Instance).Close()
	}
	if w.instance != nil {
		_ = w.instance.(operator.Instance).Close()
	}
}

// prepared writes numbers and returns what a snapshot lists.
func prepared(t *testing.T, i operator.Rewriter, n uint64, numbers ...int) []*snapshotv1.Committable {
	t.Helper()
	for _, v := range numbers {
		collect(t, i.(operator.Instance), v)
	}
	finish, err := i.(operator.Instance).Snapshot(t.Context(), operator.Barrier{Checkpoint: n})
	require.NoError(t, err)
	s, err := finish(t.Context())
	require.NoError(t, err)
	return s.GetCommittables()
}

// group makes what a restore gets of one former subtask.
func group(subtask uint32, cs []*snapshotv1.Committable) (g operator.Restored) {
	for _, c := range cs {
		g = append(g, operator.RestoredTransaction{
			Committable: c, StandsFor: []*workerv1.ReplacedTransactions{{Subtask: subtask, Checkpoints: []uint64{c.GetCheckpoint()}}},
		})
	}
	return g
}

func started(t *testing.T, b *modelBroker, store statebackend.SegmentStore, attempt uint64) (operator.Rewriter, *modelSink) {
	t.Helper()
	s := &modelSink{b: b, fuse: 1 << 30}
	i, err := durableSink(t, s, store, t.TempDir(), attempt)
	require.NoError(t, err)
	t.Cleanup(func() { _ = i.(operator.Instance).Close() })
	return i, s
}

func TestWhatFollowsALostTransactionIsWrittenBehindIt(t *testing.T) {
	b, store := &modelBroker{}, &memoryStore{dir: t.TempDir()}
	first, _ := started(t, b, store, 1)
	prepared(t, first, 1, 0, 1)
	prepared(t, first, 2, 2)
	cs := prepared(t, first, 3, 3, 4)
	require.Len(t, cs, 3)
	b.txns[1].state = isAborted

	second, s := started(t, b, store, 2)
	r, err := second.RecoverOrRewrite(t.Context(), []operator.Restored{group(5, cs)})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, b.visible(), "nothing is committed that the log does not know")
	require.Equal(t, "out", r.GetUid())
	require.Len(t, r.GetReplaced(), 1)
	require.EqualValues(t, 5, r.GetReplaced()[0].GetSubtask())
	require.Equal(t, []uint64{2, 3}, r.GetReplaced()[0].GetCheckpoints())
	require.Equal(t, isAborted, b.txns[2].state, "the one behind it is ended first")
	require.NoError(t, second.CommitRewritten(t.Context()))
	require.Equal(t, []int{0, 1, 2, 3, 4}, b.visible())
	require.Empty(t, s.released, "the log may still list it")
	require.NoError(t, second.RecoverAbort(t.Context(), operator.Scope{}))
	require.Len(t, s.released, 1)
}

func TestGroupsAreRewrittenInOneTransaction(t *testing.T) {
	b, store := &modelBroker{}, &memoryStore{dir: t.TempDir()}
	var groups []operator.Restored
	for sub := range uint32(3) {
		i, _ := started(t, b, store, uint64(sub+1))
		prepared(t, i, 1, 0)
		groups = append(groups, group(sub, prepared(t, i, 2, 1)))
	}
	b.txns[0].state, b.txns[5].state = isAborted, isAborted
	next, _ := started(t, b, store, 9)
	r, err := next.RecoverOrRewrite(t.Context(), groups)
	require.NoError(t, err)
	require.Len(t, r.GetReplaced(), 2)
	require.Equal(t, []uint64{1, 2}, r.GetReplaced()[0].GetCheckpoints())
	require.Equal(t, []uint64{2}, r.GetReplaced()[1].GetCheckpoints())
	require.NoError(t, next.CommitRewritten(t.Context()))
	require.Equal(t, []int{0, 1, 0, 0, 1, 1}, b.visible(), "group 1, the first of group 2, and then what was written again")
}

func TestUnknownOutcomesAreNeverRewritten(t *testing.T) {
	for name, states := range map[string][2]outcome{"the first": {isForgotten, isOpen}, "one behind a lost one": {isAborted, isForgotten}} {
		t.Run(name, func(t *testing.T) {
			b, store := &modelBroker{}, &memoryStore{dir: t.TempDir()}
			first, _ := started(t, b, store, 1)
			prepared(t, first, 1, 0)
			cs := prepared(t, first, 2, 1)
			b.txns[0].state, b.txns[1].state = states[0], states[1]
			second, _ := started(t, b, store, 2)
			_, err := second.RecoverOrRewrite(t.Context(), []operator.Restored{group(0, cs)})
			require.ErrorIs(t, err, sinks.ErrUnknown)
			require.Equal(t, operator.ClassDataLoss, operator.ClassOf(err))
			require.Len(t, b.txns, 2, "nothing is begun")
		})
	}
}

func TestLossWithoutRecordsStopsTheJob(t *testing.T) {
	b, store := &modelBroker{}, &memoryStore{dir: t.TempDir()}
	first, _ := started(t, b, store, 1)
	prepared(t, first, 1, 0)
	cs := prepared(t, first, 2, 1)
	cs[1].Records = nil
	b.txns[0].state = isAborted
	second, _ := started(t, b, store, 2)
	_, err := second.RecoverOrRewrite(t.Context(), []operator.Restored{group(0, cs)})
	require.ErrorIs(t, err, sinks.ErrLost)
	require.Equal(t, operator.ClassDataLoss, operator.ClassOf(err))
	require.Equal(t, isOpen, b.txns[1].state, "what cannot be written again is not ended")
}

func TestDamagedRecordsAreFound(t *testing.T) {
	b, store := &modelBroker{}, &memoryStore{dir: t.TempDir()}
	first, _ := started(t, b, store, 1)
	cs := prepared(t, first, 1, 0)
	cs[0].Records[0].Inline = bytes.Clone(cs[0].GetRecords()[0].GetInline())
	cs[0].Records[0].Inline[10] ^= 1
	b.txns[0].state = isAborted
	second, _ := started(t, b, store, 2)
	_, err := second.RecoverOrRewrite(t.Context(), []operator.Restored{group(0, cs)})
	var lost *statebackend.LostError
	require.ErrorAs(t, err, &lost)
	require.Zero(t, b.open(), "what was begun is ended")
}

// While it runs, a loss whose records are kept costs a restart and no more, and nothing is committed behind it.
func TestLossWhileRunningRestartsTheJob(t *testing.T) {
	b, store := &modelBroker{}, &memoryStore{dir: t.TempDir()}
	i, _ := started(t, b, store, 1)
	prepared(t, i, 1, 0)
	prepared(t, i, 2, 1)
	b.txns[0].state = isAborted
	err := commit(i.(operator.Instance), 2)
	require.ErrorContains(t, err, "written again")
	require.Equal(t, operator.ClassRestart, operator.ClassOf(err))
	require.Empty(t, sinks.Losses(err))
	require.Equal(t, isOpen, b.txns[1].state)
}

func TestKeptFilesAreUploadedOnceAndListedUntilCommitted(t *testing.T) {
	b, store := &modelBroker{}, &memoryStore{dir: t.TempDir()}
	i, _ := started(t, b, store, 1)
	many := make([]int, 10_000)
	for n := range many {
		many[n] = n
	}
	store.broken = &statebackend.StorageError{Op: "store", Err: bytes.ErrTooLarge}
	for _, v := range many {
		collect(t, i.(operator.Instance), v)
	}
	finish, err := i.(operator.Instance).Snapshot(t.Context(), operator.Barrier{Checkpoint: 1})
	require.NoError(t, err)
	_, err = finish(t.Context())
	var storage *statebackend.StorageError
	require.ErrorAs(t, err, &storage, "the checkpoint is declined")
	store.broken = nil

	one := func(n uint64, numbers ...int) *snapshotv1.Segment {
		t.Helper()
		cs := prepared(t, i, n, numbers...)
		require.NotEmpty(t, cs)
		require.Len(t, cs[0].GetRecords(), 1)
		return cs[0].GetRecords()[0]
	}
	second := one(2)
	require.Equal(t, []string{"c/jobs/j/state/1/v-0/out/1-0"}, store.uploads)
	require.EqualValues(t, 2, second.GetCheckpoint(), "no completed checkpoint lists it, so that it is this one's")
	require.EqualValues(t, 10_000, second.GetEntries())
	require.EqualValues(t, 3, one(3, 1).GetCheckpoint())
	done := make(chan error, 1)
	b.txns[0].state = isAborted // so that it stays pending
	i.Commit(3, func(err error) { done <- err })
	require.Error(t, <-done)
	fourth := one(4)
	require.EqualValues(t, 3, fourth.GetCheckpoint(), "checkpoint 3 is complete and lists it")
	require.Equal(t, second.GetName(), fourth.GetName())
	require.Len(t, store.uploads, 1)
}

func TestDurableOutputNeedsExactlyOnce(t *testing.T) {
	sink := sinks.TwoPhase(sinks.TwoPhaseConfig[int, int]{
		Kind: "fake", DurableOutput: true, New: func() (sinks.TwoPhaseCommitSink[int, int], error) { return &fake{}, nil },
	})
	require.ErrorContains(t, sink.Validate(sources.JobSettings{Guarantee: graph.AtLeastOnce}), "exactly-once")
	require.NoError(t, sink.Validate(sources.JobSettings{Guarantee: graph.ExactlyOnce}))
	_, err := sink.NewInstance(graph.ExactlyOnce)
	require.ErrorContains(t, err, "not supported")
}
