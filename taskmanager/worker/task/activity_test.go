package task_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/barrier"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
	"github.com/weir-stream/weir/taskmanager/worker/task"
)

// gate is an operator that does not take a record before it is opened.
type gate struct {
	operator.Base
	entered, open chan struct{}
}

func (g *gate) Input() any { return operator.Collector[int](g) }

func (g *gate) Collect(int, int64) error {
	close(g.entered)
	<-g.open
	return nil
}

// activity returns what the task says it is at, once ok likes it.
func (f *fixture) activity(t *testing.T, ok func(*jobv1.TaskActivity) bool) *jobv1.TaskActivity {
	t.Helper()
	var a *jobv1.TaskActivity
	require.Eventually(t, func() bool { a = f.task.Statistics().GetActivity(); return ok(a) }, patience, time.Millisecond)
	return a
}

func TestActivityOfATaskStuckInARecord(t *testing.T) {
	f := &fixture{d: newDiary()}
	g := &gate{entered: make(chan struct{}), open: make(chan struct{})}
	defer close(g.open)
	cfg := config(f.d)
	cfg.Inbox = exchange.NewInbox(1)
	sender := exchange.NewLocal(cfg.Inbox, 0)
	cfg.Chain, cfg.Readers = []task.Link{link("gate", g, -1)}, []operator.Reader{reader{g}}
	f.run(t, cfg)
	f.activity(t, func(a *jobv1.TaskActivity) bool { return a.GetDoing() == "" })
	require.NoError(t, sender.Send(batch{1}))
	require.NoError(t, sender.Send(batch{2}))
	<-g.entered
	failed, end := cfg.Chain[0].Runtime.Stats.Waits.BeginTries("the moon")
	failed(errors.New("clouds, " + strings.Repeat("very ", 100)))
	a := f.activity(t, func(a *jobv1.TaskActivity) bool { return a.GetForMs() >= 20 && a.GetWaits()[0].GetForMs() >= 20 })
	require.Equal(t, "processing records in gate", a.GetDoing())
	require.EqualValues(t, 1, a.GetQueued())
	require.Equal(t, "the moon", a.GetWaits()[0].GetWhat())
	require.Regexp(t, "^clouds, very .*…$", a.GetWaits()[0].GetLastError())
	require.Less(t, len(a.GetWaits()[0].GetLastError()), 310)
	end()
	require.Empty(t, f.task.Statistics().GetActivity().GetWaits())
}

func TestActivityNamesTheFullInput(t *testing.T) {
	f := twoSteps(t)
	fed := make(chan struct{})
	go func() { // until the task is full too; nobody polls its output
		defer close(fed)
		for f.senders[0].Send(batch(make([]int, 100))) == nil {
		}
	}()
	a := f.activity(t, func(a *jobv1.TaskActivity) bool { return a.GetBlockedMs() > 10 })
	require.Equal(t, "c[0]", a.GetBlockedOn())
	f.senders[0].Close(false)
	<-fed
}

func TestActivityFollowsACheckpoint(t *testing.T) {
	f := twoSteps(t)
	require.NoError(t, f.senders[0].Barrier(bar(7)))
	a := f.activity(t, func(a *jobv1.TaskActivity) bool { return a.GetCheckpoint() == 7 })
	require.Equal(t, jobv1.CheckpointStage_CHECKPOINT_STAGE_ALIGNING, a.GetStage())
	require.Equal(t, []string{"input 1"}, a.GetMissingInputs())
	require.NoError(t, f.senders[1].Barrier(bar(7)))
	f.activity(t, func(a *jobv1.TaskActivity) bool { return a.GetStage() == jobv1.CheckpointStage_CHECKPOINT_STAGE_DONE })
}

func bar(n uint64) barrier.Barrier { return barrier.Barrier{Checkpoint: n} }
