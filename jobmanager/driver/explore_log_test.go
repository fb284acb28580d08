package driver

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"iter"

	"google.golang.org/protobuf/proto"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
	"github.com/weir-stream/weir/statebackend/blob"
)

// The log and checkpoint storage in memory. The state machine is the product's.

// fault is what happens to one of the entries that a leader proposes in one step.
type fault struct {
	mode logFault
	at   uint8 // which of them
}

type logFault uint8

const (
	logFine           logFault = iota
	logEndsLost                // the leadership ends and the entry never gets into the log
	logEndsApplied             // the leadership ends, but the next leader finds the entry
	logUnknownLost             // nobody knows until a barrier: it did not get there
	logUnknownApplied          // nobody knows until a barrier: it did
)

// memLog is the log as the state machine that has applied it.
type memLog struct {
	x     *explorer
	state fsm.State
	term  uint64
	// fault, calls and ended are of the present step.
	fault fault
	calls uint8
	ended bool
}

func (l *memLog) Propose(_ context.Context, cmd *raftv1.Command) (fsm.Result, error) {
	i := l.calls
	l.calls++
	if l.ended {
		return fsm.Result{}, raftnode.ErrNotLeader
	}
	mode := logFine
	if l.fault.at == i {
		mode = l.fault.mode
	}
	l.ended = mode == logEndsLost || mode == logEndsApplied
	if mode == logEndsLost || mode == logUnknownLost {
		l.x.note("not in the log: %s", nameOfCommand(cmd))
		return fsm.Result{}, raftnode.ErrUnknownOutcome
	}
	res := l.apply(cmd)
	if res.Err != nil {
		l.x.note("the log refuses %s: %v", nameOfCommand(cmd), res.Err)
	} else {
		l.x.note("in the log: %s", nameOfCommand(cmd))
	}
	if mode == logEndsApplied || mode == logUnknownApplied {
		return fsm.Result{}, raftnode.ErrUnknownOutcome
	}
	return res, nil
}

func (l *memLog) Level() uint32 { return fsm.Level }

// apply lets the state machine apply a command without the times and texts in it, and drops garbage as the cleaner would.
func (l *memLog) apply(cmd *raftv1.Command) fsm.Result {
	switch c := cmd.GetCommand().(type) {
	case *raftv1.Command_NewAttempt:
		c.NewAttempt.AtMs = 0
		c.NewAttempt.Token = fmt.Sprintf("token %d of term %d", c.NewAttempt.GetAttempt(), l.term)
		if l.x.mutation == forgetUnfenced {
			defer l.forgetUnfenced()
		}
	case *raftv1.Command_StartAttempt:
		c.StartAttempt.RecoveryMs = 0
	case *raftv1.Command_FailAttempt:
		c.FailAttempt.Failure = nil
	case *raftv1.Command_EndJob:
		c.EndJob.Failure = nil
	case *raftv1.Command_RecordResult:
		c.RecordResult.AtMs = 0
	case *raftv1.Command_CompleteCheckpoint:
		if l.x.mutation == settleAtOnce {
			c.CompleteCheckpoint.Checkpoint.Committables = 0
		}
		c.CompleteCheckpoint.Checkpoint.TriggeredAtMs, c.CompleteCheckpoint.Checkpoint.DurationMs = 0, 0
	}
	res := l.state.Apply(1, cmd)
	if g := res.Job.GetGarbage(); len(g) > 0 {
		drop := &raftv1.DropGarbage{JobId: exploredJob}
		for _, cp := range g {
			drop.Checkpoints = append(drop.Checkpoints, cp.GetId())
		}
		res.Job = l.state.Apply(1, &raftv1.Command{Command: &raftv1.Command_DropGarbage{DropGarbage: drop}}).Job
	}
	return res
}

func (l *memLog) forgetUnfenced() {
	rec, _ := l.state.View().Job(exploredJob)
	var cmd raftv1.FencedAttempts
	cmd.JobId = exploredJob
	for _, f := range rec.GetUnfenced() {
		cmd.Attempts = append(cmd.Attempts, f.GetAttempt())
	}
	l.state.Apply(1, &raftv1.Command{Command: &raftv1.Command_FencedAttempts{FencedAttempts: &cmd}})
}

func (l *memLog) forgetReserved() {
	snap := proto.CloneOf(l.state.Snapshot())
	for _, rec := range snap.GetJobs() {
		rec.NextCheckpoint = 1
		if last, ok := fsm.LastCheckpoint(rec); ok {
			rec.NextCheckpoint = last.GetId() + 1
		}
	}
	if err := l.state.Restore(snap); err != nil {
		panic(err)
	}
}

func (l *memLog) Barrier(context.Context) error {
	if l.ended {
		return raftnode.ErrNotLeader
	}
	return nil
}

func (l *memLog) View() fsm.View { return l.state.View() }

func (l *memLog) record() *raftv1.JobRecord {
	rec, _ := l.state.View().Job(exploredJob)
	return rec
}

func nameOfCommand(cmd *raftv1.Command) string {
	m := cmd.ProtoReflect()
	name := string(m.WhichOneof(m.Descriptor().Oneofs().Get(0)).Name())
	switch c := cmd.GetCommand().(type) {
	case *raftv1.Command_NewAttempt:
		name += fmt.Sprintf(" %d settle_only=%t", c.NewAttempt.GetAttempt(), c.NewAttempt.GetSettleOnly())
	case *raftv1.Command_StartAttempt:
		name += fmt.Sprintf(" %d", c.StartAttempt.GetAttempt())
	case *raftv1.Command_CompleteCheckpoint:
		name += fmt.Sprintf(" %d of attempt %d", c.CompleteCheckpoint.GetCheckpoint().GetId(), c.CompleteCheckpoint.GetCheckpoint().GetAttempt())
	case *raftv1.Command_SettleCheckpoint:
		name += fmt.Sprintf(" %d", c.SettleCheckpoint.GetCheckpoint())
	case *raftv1.Command_FencedAttempts:
		name += fmt.Sprintf(" %v", c.FencedAttempts.GetAttempts())
	}
	return name
}

// memBucket is checkpoint storage. Contents of all branches of the exploration live side by side.
type memBucket struct {
	blob.Bucket
	content map[string][]byte
	last    string
}

func (b *memBucket) Put(_ context.Context, name string, r io.Reader) error {
	data, err := io.ReadAll(r)
	b.last = fmt.Sprintf("%s#%08x", name, crc32.ChecksumIEEE(data))
	b.content[b.last] = data
	return err
}

func (b *memBucket) Open(_ context.Context, name string) (io.ReadCloser, error) {
	data, ok := b.content[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, blob.ErrNotExist)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (b *memBucket) List(context.Context, string) iter.Seq2[blob.Attributes, error] {
	return func(func(blob.Attributes, error) bool) {}
}
