package fsm_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"
)

// drawCommand draws a command that often enough makes sense in the present state.
func drawCommand(t *rapid.T, v fsm.View) *raftv1.Command {
	id := rapid.SampledFrom([]string{"j", "j", "j", "k"}).Draw(t, "job")
	r, _ := v.Job(id)
	near := func(n uint64, label string) uint64 {
		return uint64(max(0, int64(n)+int64(rapid.SampledFrom([]int{0, 0, 0, 0, -1, 1, 2}).Draw(t, label))))
	}
	last := uint64(0)
	if cp, ok := fsm.LastCheckpoint(r); ok {
		last = cp.GetId()
	}
	request := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "request"))
	target := rapid.SampledFrom([]jobv1.JobState{finished, failed, canceled, stopped, running}).Draw(t, "target")
	makers := []func() *raftv1.Command{
		func() *raftv1.Command {
			job := record(id)
			job.RequestId = request
			job.Graph.Vertices[1].Operators[1].DurableOutput = rapid.Bool().Draw(t, "durable")
			job.Name = rapid.SampledFrom([]string{"name-j", "name-k"}).Draw(t, "name")
			return createRecord(job)
		},
		func() *raftv1.Command { return newAttempt(near(r.GetAttempt()+1, "attempt")) },
		func() *raftv1.Command { return settlingAttempt(near(r.GetAttempt()+1, "attempt")) },
		func() *raftv1.Command { return start(near(r.GetAttempt(), "attempt")) },
		func() *raftv1.Command {
			return fail(near(r.GetAttempt(), "attempt"), rapid.Int64Range(0, 100).Draw(t, "at"), rapid.Bool().Draw(t, "counted"))
		},
		func() *raftv1.Command {
			return drawCompletion(t, r, near(last+1, "checkpoint"), near(r.GetAttempt(), "attempt"))
		},
		func() *raftv1.Command { return drawCompletion(t, r, last+1, r.GetAttempt()) },
		func() *raftv1.Command {
			return replaceAll(near(r.GetAttempt(), "attempt"), near(r.GetRestore().GetCheckpoint(), "checkpoint"), replacement(request, last+1))
		},
		func() *raftv1.Command { return settled(near(last, "checkpoint")) },
		func() *raftv1.Command { return reserve(near(r.GetNextCheckpoint()+10, "limit")) },
		func() *raftv1.Command { return end(request, target) },
		func() *raftv1.Command {
			return result(rapid.SampledFrom([]jobv1.JobState{goesOn, target}).Draw(t, "state"), rapid.SampledFrom([]string{"", "broker gone"}).Draw(t, "unsettled"))
		},
		func() *raftv1.Command { return settleEnded(near(r.GetAttempt()+1, "attempt")) },
		func() *raftv1.Command { return dropGarbage(near(last, "a"), near(last/2, "b")) },
		func() *raftv1.Command { return dropGarbage(ids(r.GetGarbage())...) },
		func() *raftv1.Command { return fenced(near(r.GetAttempt(), "a")) },
		func() *raftv1.Command { return fenced(near(r.GetAttempt()/2, "a"), near(r.GetAttempt(), "b")) },
		func() *raftv1.Command { return requestStop(request, "dir") },
		func() *raftv1.Command { return clearStop("no") },
		func() *raftv1.Command { return pin(near(last, "checkpoint"), rapid.Bool().Draw(t, "pinned")) },
		func() *raftv1.Command { return savepoint(&raftv1.Savepoint{RequestId: request}) },
		func() *raftv1.Command { return member(request, uint32(last)) },
		func() *raftv1.Command { return forget(id) },
		func() *raftv1.Command {
			return lose(&jobv1.LostOutput{
				Transaction: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "lost"), Checkpoint: near(last, "of"), Accepted: rapid.Bool().Draw(t, "accepted"),
			})
		},
		func() *raftv1.Command {
			l := &jobv1.LostOutput{
				Transaction: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "lost"), Checkpoint: near(last, "of"), Accepted: rapid.Bool().Draw(t, "accepted"),
			}
			l.Pending = l.GetAccepted() && rapid.Bool().Draw(t, "pending")
			return updated(l)
		},
		func() *raftv1.Command {
			return withdraw(&jobv1.LostOutput{Transaction: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "withdrawn"), Checkpoint: near(last, "of")})
		},
		func() *raftv1.Command {
			return settledResult(near(last, "settled"), rapid.SampledFrom([]string{"", "broker gone"}).Draw(t, "left"), near(r.GetAttempt(), "fenced"))
		},
		func() *raftv1.Command {
			return initCluster(rapid.SampledFrom([]string{"", "c", "d"}).Draw(t, "cluster"))
		},
		func() *raftv1.Command {
			x := rescaleTo(request, rapid.Uint32Range(1, 2).Draw(t, "parallelism"))
			x.GetRescaleJob().Rescale.Base = r.GetGraph().GetFingerprint()
			return x
		},
		func() *raftv1.Command { return rescaleFailed(request, "no") },
		func() *raftv1.Command { return hollow(t, id) },
	}
	sensible := func() *raftv1.Command { return sensible(t, id, r) }
	makers = append(makers, sensible, sensible, sensible, sensible, sensible, sensible)
	cmd := rapid.SampledFrom(makers).Draw(t, "kind")()
	if c := cmd.ProtoReflect(); id != "j" {
		inner := c.Mutable(c.WhichOneof(c.Descriptor().Oneofs().Get(0))).Message()
		if fd := inner.Descriptor().Fields().ByName("job_id"); fd != nil {
			inner.Set(fd, protoreflect.ValueOfString(id))
		}
	}
	return cmd
}

// sensible is what brings a job on its way.
func sensible(t *rapid.T, id string, r *raftv1.JobRecord) *raftv1.Command {
	last, _ := fsm.LastCheckpoint(r)
	switch {
	case r == nil:
		return create(id)
	case len(r.GetGarbage()) > 0 && rapid.Bool().Draw(t, "drop"):
		return dropGarbage(ids(r.GetGarbage())...)
	case r.GetState() == created || r.GetState() == restarting:
		return onSlots(r.GetAttempt()+1, int(max(1, fsm.Slots(r.GetRescale().GetGraph()))))
	case r.GetState() == deploying:
		return start(r.GetAttempt())
	case r.GetState() == settling:
		return result(goesOn, rapid.SampledFrom([]string{"", "broker gone"}).Draw(t, "unsettled"))
	case fsm.Terminal(r.GetState()) && r.GetUnsettled() != "":
		if r.GetToken() != "" && rapid.Bool().Draw(t, "settled later") {
			return settledResult(last.GetId(), "", unfencedOf(r)...)
		}
		return settleEnded(r.GetAttempt() + 1)
	case fsm.Terminal(r.GetState()):
		return forget(id)
	case last.GetId()+1 >= r.GetNextCheckpoint():
		return reserve(r.GetNextCheckpoint() + 10)
	}
	return complete(checkpoint(r.GetAttempt(), last.GetId()+1), goesOn)
}

// hollow is a command of any kind that says nothing but, perhaps, which job it is about.
func hollow(t *rapid.T, job string) *raftv1.Command {
	cmd := &raftv1.Command{}
	kinds := cmd.ProtoReflect().Descriptor().Oneofs().Get(0).Fields()
	inner := cmd.ProtoReflect().Mutable(kinds.Get(rapid.IntRange(0, kinds.Len()-1).Draw(t, "hollow"))).Message()
	if fd := inner.Descriptor().Fields().ByName("job_id"); fd != nil && rapid.Bool().Draw(t, "about") {
		inner.Set(fd, protoreflect.ValueOfString(job))
	}
	return cmd
}

func drawCompletion(t *rapid.T, r *raftv1.JobRecord, id, attempt uint64) *raftv1.Command {
	var origins []uint64
	for _, cp := range r.GetCheckpoints() {
		if rapid.Bool().Draw(t, "origin") {
			origins = append(origins, cp.GetId())
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "old origin") == 0 {
		origins = append(origins, id/2)
	}
	cp := checkpoint(attempt, id, origins...)
	cp.Committables = rapid.Uint32Range(0, 1).Draw(t, "committables")
	cp.Pinned = rapid.IntRange(0, 9).Draw(t, "pin") == 0
	ending := rapid.IntRange(0, 19).Draw(t, "ending")
	cp.Final, cp.Stop = ending == 0, ending == 1
	return complete(cp, map[int]jobv1.JobState{0: finished, 1: stopped}[ending])
}

// replica is a state machine as a member runs it: it gets the log as bytes, takes snapshots, and when it restarts it begins with the
// last one and the log from there.
type replica struct {
	machine  *fsm.Machine
	snapshot []byte // nil before the first
	behind   []*raft.Log
}

func (r *replica) apply(l *raft.Log) fsm.Result {
	r.behind = append(r.behind, l)
	return r.machine.Apply(l).(fsm.Result)
}

func (r *replica) state(t require.TestingT) []byte {
	s, err := r.machine.Snapshot()
	require.NoError(t, err)
	var out sink
	require.NoError(t, s.Persist(&out))
	return out.Bytes()
}

func (r *replica) restart(t require.TestingT) {
	r.machine = fsm.NewMachine()
	if r.snapshot != nil {
		require.NoError(t, r.machine.Restore(io.NopCloser(bytes.NewReader(r.snapshot))))
	}
	for _, l := range r.behind {
		r.machine.Apply(l)
	}
}

// disturb does what happens to a member at any time.
func (r *replica) disturb(t *rapid.T, from *replica) {
	switch rapid.IntRange(0, 11).Draw(t, "disturb") {
	case 0:
		r.snapshot, r.behind = r.state(t), nil
	case 1:
		r.restart(t)
	case 2: // a snapshot of another member is installed
		r.snapshot, r.behind = from.state(t), nil
		r.restart(t)
	}
}

// TestReplicasAgree runs one log on a state and on three replicas that take snapshots, restart and catch up at random points, and
// checks that all are the same to the byte, and what must hold in every state and across every step.
func TestReplicasAgree(t *testing.T) {
	kinds := map[protoreflect.FieldNumber]int{}
	rapid.Check(t, func(t *rapid.T) {
		var a fsm.State
		replicas := []*replica{{machine: fsm.NewMachine()}, {machine: fsm.NewMachine()}, {machine: fsm.NewMachine()}}
		index := uint64(0)
		apply := func(cmd *raftv1.Command) fsm.Result {
			index++
			data, err := proto.Marshal(cmd)
			require.NoError(t, err)
			res := a.Apply(index, proto.CloneOf(cmd))
			var want bytes.Buffer
			require.NoError(t, fsm.WriteSnapshot(&want, a.Snapshot()))
			for _, r := range replicas {
				got := r.apply(&raft.Log{Index: index, Data: data})
				require.Equal(t, fmt.Sprint(res.Err), fmt.Sprint(got.Err))
				require.Equal(t, res.Repeated, got.Repeated)
				require.Equal(t, res.FirstID, got.FirstID)
				require.True(t, bytes.Equal(want.Bytes(), r.state(t)), "replicas differ after %v", cmd)
			}
			return res
		}
		for _, cmd := range []*raftv1.Command{create("j"), reserve(50), newAttempt(1), start(1)} {
			apply(cmd)
		}
		for range rapid.IntRange(1, 60).Draw(t, "commands") {
			for i, r := range replicas {
				r.disturb(t, replicas[(i+1)%len(replicas)])
			}
			cmd := drawCommand(t, a.View())
			before, kept := a.View(), proto.CloneOf(a.Snapshot())
			res := apply(cmd)
			m := cmd.ProtoReflect()
			kinds[m.WhichOneof(m.Descriptor().Oneofs().Get(0)).Number()]++
			if res.Err != nil || res.Repeated {
				require.True(t, proto.Equal(kept, a.Snapshot()), "a rejected command changed something: %v", cmd)
			}
			checkView(t, a.View())
			checkStep(t, before, a.View(), kept)
		}
	})
	all := (&raftv1.Command{}).ProtoReflect().Descriptor().Fields()
	for i := range all.Len() {
		f := all.Get(i)
		require.NotZero(t, kinds[f.Number()], "%s was never drawn", f.Name())
	}
}

func checkView(t *rapid.T, v fsm.View) {
	live := make(map[string]bool)
	for _, r := range v.Jobs() {
		if !fsm.Terminal(r.GetState()) {
			require.False(t, live[r.GetName()], "two live jobs with one name")
			live[r.GetName()] = true
		}
		all := append(slices.Clone(ids(r.GetCheckpoints())), ids(r.GetGarbage())...)
		slices.Sort(all)
		require.Len(t, slices.Compact(slices.Clone(all)), len(all), "a checkpoint is both retained and garbage, or twice")
		require.True(t, slices.IsSorted(ids(r.GetCheckpoints())))
		for _, cp := range r.GetCheckpoints() {
			require.Less(t, cp.GetId(), r.GetNextCheckpoint())
			require.LessOrEqual(t, cp.GetAttempt(), r.GetAttempt())
		}
		for _, cp := range r.GetGarbage() {
			require.False(t, cp.GetPinned())
		}
		if own := r.GetRestore().GetCheckpoint(); own > 0 && !fsm.Terminal(r.GetState()) {
			require.Contains(t, ids(r.GetCheckpoints()), own, "the restore point was dropped")
		}
		if r.GetState() == running {
			require.True(t, r.GetStarted())
		}
		if r.GetState() == settling {
			require.True(t, fsm.Terminal(r.GetTarget()))
		}
	}
}

func checkStep(t *rapid.T, before, after fsm.View, kept *raftv1.Snapshot) {
	for i, r := range before.Jobs() {
		require.True(t, proto.Equal(kept.GetJobs()[i], r), "a view changed after it was taken")
		now, ok := after.Job(r.GetId())
		if !ok {
			require.True(t, fsm.Terminal(r.GetState()), "a live job was forgotten")
			continue
		}
		require.GreaterOrEqual(t, now.GetAttempt(), r.GetAttempt())
		require.GreaterOrEqual(t, now.GetNextCheckpoint(), r.GetNextCheckpoint())
		if fsm.Terminal(r.GetState()) {
			require.Equal(t, r.GetState(), now.GetState(), "a result changed")
		}
		if now.GetCompletedCheckpoints() > r.GetCompletedCheckpoints() {
			last, _ := fsm.LastCheckpoint(now)
			require.Equal(t, r.GetAttempt(), last.GetAttempt(), "a stale attempt completed a checkpoint")
			require.True(t, r.GetStarted())
			require.Contains(t, []jobv1.JobState{running, restarting}, r.GetState(), "a checkpoint completed in an ending job")
			former, _ := fsm.LastCheckpoint(r)
			require.Greater(t, last.GetId(), former.GetId())
		}
		if now.GetAttempt() > r.GetAttempt() {
			last, _ := fsm.LastCheckpoint(r)
			require.Equal(t, last.GetId(), now.GetRestore().GetCheckpoint(), "an attempt does not start from the last checkpoint")
			if !fsm.DurableOutput(r.GetGraph()) { // whose attempts may write before they are started
				require.Equal(t, r.GetStarted() && !r.GetSettlingAttempt(), len(now.GetUnfenced()) > len(r.GetUnfenced()))
			}
		}
	}
}
