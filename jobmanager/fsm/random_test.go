package fsm_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

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
		func() *raftv1.Command { return settled(near(last, "checkpoint")) },
		func() *raftv1.Command { return reserve(near(r.GetNextCheckpoint()+10, "limit")) },
		func() *raftv1.Command { return end(request, target) },
		func() *raftv1.Command {
			return result(rapid.SampledFrom([]jobv1.JobState{goesOn, target}).Draw(t, "state"), "")
		},
		func() *raftv1.Command { return dropGarbage(near(last, "a"), near(last/2, "b")) },
		func() *raftv1.Command { return fenced(near(r.GetAttempt(), "a")) },
		func() *raftv1.Command { return requestStop(request, "dir") },
		func() *raftv1.Command { return clearStop("no") },
		func() *raftv1.Command { return pin(near(last, "checkpoint"), rapid.Bool().Draw(t, "pinned")) },
		func() *raftv1.Command { return savepoint(&raftv1.Savepoint{RequestId: request}) },
		func() *raftv1.Command { return member(request, uint32(last)) },
		func() *raftv1.Command { return forget(id) },
	}
	cmd := rapid.SampledFrom(makers).Draw(t, "kind")()
	if c := cmd.ProtoReflect(); id != "j" {
		inner := c.Mutable(c.WhichOneof(c.Descriptor().Oneofs().Get(0))).Message()
		if fd := inner.Descriptor().Fields().ByName("job_id"); fd != nil {
			inner.Set(fd, protoreflect.ValueOfString(id))
		}
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

// TestReplicasAgree runs one log on two replicas, of which one restores a snapshot of the other now and then, and checks what must
// hold in every state and across every step.
func TestReplicasAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a, b fsm.State
		for _, cmd := range []*raftv1.Command{create("j"), reserve(50), newAttempt(1), start(1)} {
			a.Apply(0, proto.CloneOf(cmd))
			b.Apply(0, proto.CloneOf(cmd))
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "commands") {
			if rapid.IntRange(0, 9).Draw(t, "restore") == 0 {
				var buf bytes.Buffer
				require.NoError(t, fsm.WriteSnapshot(&buf, b.Snapshot()))
				snap, err := fsm.ReadSnapshot(&buf)
				require.NoError(t, err)
				b = fsm.State{}
				require.NoError(t, b.Restore(snap))
			}
			cmd := drawCommand(t, a.View())
			before, kept := a.View(), proto.CloneOf(a.Snapshot())
			index := uint64(i + 1)
			resA, resB := a.Apply(index, proto.CloneOf(cmd)), b.Apply(index, proto.CloneOf(cmd))

			require.Equal(t, fmt.Sprint(resA.Err), fmt.Sprint(resB.Err))
			require.Equal(t, resA.Repeated, resB.Repeated)
			require.Equal(t, resA.FirstID, resB.FirstID)
			require.True(t, proto.Equal(a.Snapshot(), b.Snapshot()), "replicas differ after %v", cmd)
			if resA.Err != nil || resA.Repeated {
				require.True(t, proto.Equal(kept, a.Snapshot()), "a rejected command changed something: %v", cmd)
			}
			checkView(t, a.View())
			checkStep(t, before, a.View(), kept)
		}
	})
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
			require.Equal(t, r.GetStarted() && !r.GetSettlingAttempt(), len(now.GetUnfenced()) > len(r.GetUnfenced()))
		}
	}
}
