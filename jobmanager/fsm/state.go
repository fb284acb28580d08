package fsm

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"google.golang.org/protobuf/encoding/protowire"
)

// Level is the command level of this program: the highest command number it understands.
const Level = 25

// FirstLevel is the command level of the first program, which a member has that has not told its own.
const FirstLevel = 18

// durableLevel is the level from which on an attempt of a job with durable output that was never started counts as one that may have
// left transactions open.
const durableLevel = 19

// LevelOf returns the level that a program must have to apply a command.
func LevelOf(cmd *raftv1.Command) uint32 {
	if j := cmd.GetCreateJob().GetJob(); j.GetAutoParallelism() || len(j.GetOperatorParallelism()) > 0 {
		return rescaleLevel
	}
	if unsettled(cmd.GetCreateJob().GetJob().GetFrom()) {
		return originLevel
	}
	if DurableOutput(cmd.GetCreateJob().GetJob().GetGraph()) {
		return durableLevel
	}
	if len(cmd.GetCreateJob().GetJob().GetLost()) > 0 {
		return lossLevel
	}
	m := cmd.ProtoReflect()
	if fd := m.WhichOneof(m.Descriptor().Oneofs().Get(0)); fd != nil {
		return uint32(fd.Number())
	}
	return 0
}

// Result is the answer to one command; on the leader it is the response of the Raft future.
type Result struct {
	// Err is nil or wraps one of the package's errors; the command has then changed nothing.
	Err error
	// Job is the job's record after the command, also when it was rejected; nil for commands about no job, or without one. It is
	// read-only.
	Job *raftv1.JobRecord
	// Repeated tells that what the command asks for was so already, for example because its request id was known: it has changed
	// nothing. For a CreateJob, Job is the one created the first time.
	Repeated bool
	// FirstID is the first of the ids that a ReserveCheckpointIDs reserved.
	FirstID uint64
}

// State is the state machine. The zero value is the empty state.
type State struct {
	v View
}

// View returns the present state.
func (s *State) View() View { return s.v }

// Apply carries out the command at log position index and keeps parts of the command, which must not be modified afterwards. It
// panics when the program does not know the command.
func (s *State) Apply(index uint64, cmd *raftv1.Command) Result {
	s.v.index = index
	switch c := cmd.GetCommand().(type) {
	case *raftv1.Command_InitCluster:
		return s.initCluster(c.InitCluster)
	case *raftv1.Command_CreateJob:
		return s.createJob(c.CreateJob)
	case *raftv1.Command_NewAttempt:
		return s.update(c.NewAttempt.GetJobId(), newAttempt(c.NewAttempt))
	case *raftv1.Command_StartAttempt:
		return s.tellOrigin(s.update(c.StartAttempt.GetJobId(), startAttempt(c.StartAttempt)))
	case *raftv1.Command_FailAttempt:
		return s.update(c.FailAttempt.GetJobId(), failAttempt(c.FailAttempt))
	case *raftv1.Command_CompleteCheckpoint:
		return s.update(c.CompleteCheckpoint.GetJobId(), completeCheckpoint(c.CompleteCheckpoint))
	case *raftv1.Command_SettleCheckpoint:
		return s.update(c.SettleCheckpoint.GetJobId(), settleCheckpoint(c.SettleCheckpoint))
	case *raftv1.Command_ReserveCheckpointIds:
		return s.reserve(c.ReserveCheckpointIds)
	case *raftv1.Command_EndJob:
		return s.update(c.EndJob.GetJobId(), endJob(c.EndJob))
	case *raftv1.Command_RecordResult:
		return s.update(c.RecordResult.GetJobId(), recordResult(c.RecordResult))
	case *raftv1.Command_DropGarbage:
		return s.update(c.DropGarbage.GetJobId(), dropGarbage(c.DropGarbage))
	case *raftv1.Command_FencedAttempts:
		return s.update(c.FencedAttempts.GetJobId(), fencedAttempts(c.FencedAttempts))
	case *raftv1.Command_RequestStop:
		return s.update(c.RequestStop.GetJobId(), requestStop(c.RequestStop))
	case *raftv1.Command_ClearStop:
		return s.update(c.ClearStop.GetJobId(), clearStop(c.ClearStop))
	case *raftv1.Command_PinCheckpoint:
		return s.update(c.PinCheckpoint.GetJobId(), pinCheckpoint(c.PinCheckpoint))
	case *raftv1.Command_RecordSavepoint:
		return s.update(c.RecordSavepoint.GetJobId(), recordSavepoint(c.RecordSavepoint))
	case *raftv1.Command_RescaleJob:
		return s.update(c.RescaleJob.GetJobId(), rescaleJob(c.RescaleJob))
	case *raftv1.Command_MemberLevel:
		return s.memberLevel(c.MemberLevel)
	case *raftv1.Command_RecordLoss:
		return s.update(c.RecordLoss.GetJobId(), recordLoss(c.RecordLoss))
	case *raftv1.Command_UpdateLosses:
		return s.tellOriginLosses(c.UpdateLosses, s.update(c.UpdateLosses.GetJobId(), updateLosses(c.UpdateLosses)))
	case *raftv1.Command_SettleResult:
		return s.update(c.SettleResult.GetJobId(), settleResult(c.SettleResult))
	case *raftv1.Command_ForgetJob:
		return s.forgetJob(c.ForgetJob)
	case *raftv1.Command_ReplaceTransactions:
		return s.tellOrigin(s.update(c.ReplaceTransactions.GetJobId(), s.replaceTransactions(c.ReplaceTransactions)))
	case *raftv1.Command_SettleEnded:
		return s.update(c.SettleEnded.GetJobId(), s.settleEnded(c.SettleEnded))
	}
	number, _, _ := protowire.ConsumeTag(cmd.ProtoReflect().GetUnknown())
	panic(fmt.Sprintf("fsm: log entry %d holds command %d, and this program knows commands up to %d only: "+
		"it is older than the leader that wrote the entry and must be upgraded", index, number, Level))
}

// errRepeated is what a change returns when there is nothing to change.
var errRepeated = errors.New("repeated")

// change modifies a record, which is a copy made for it: fields may be assigned, and slices appended to and cut, but messages that
// the record refers to are shared and must be replaced. After an error the copy is thrown away.
type change func(r *raftv1.JobRecord) error

func (s *State) update(id string, apply change) Result {
	i := slices.IndexFunc(s.v.jobs, func(r *raftv1.JobRecord) bool { return r.GetId() == id })
	if i < 0 {
		return Result{Err: fmt.Errorf("job %s: %w", id, ErrUnknownJob)}
	}
	old := s.v.jobs[i]
	r := copyRecord(old)
	switch err := apply(r); {
	case errors.Is(err, errRepeated):
		return Result{Job: old, Repeated: true}
	case err != nil:
		return Result{Job: old, Err: fmt.Errorf("job %s (%s): %w", old.GetName(), id, err)}
	}
	s.v.jobs = slices.Clone(s.v.jobs)
	s.v.jobs[i] = r
	return Result{Job: r}
}

func (s *State) initCluster(c *raftv1.InitCluster) Result {
	switch {
	case c.GetClusterId() == "":
		return Result{Err: fmt.Errorf("cluster id is empty: %w", ErrInvalid)}
	case s.v.clusterID != "":
		return Result{Repeated: true}
	}
	s.v.clusterID = c.GetClusterId()
	return Result{}
}

func (s *State) memberLevel(m *raftv1.MemberLevel) Result {
	if m.GetId() == "" {
		return Result{Err: fmt.Errorf("member id is empty: %w", ErrInvalid)}
	}
	i, found := slices.BinarySearchFunc(s.v.members, m.GetId(), func(m *raftv1.MemberLevel, id string) int {
		return strings.Compare(m.GetId(), id)
	})
	members := slices.Clone(s.v.members)
	if found {
		old := members[i]
		if old.GetAddress() == m.GetAddress() && old.GetLevel() == m.GetLevel() {
			return Result{Repeated: true}
		}
		members[i] = m
	} else {
		members = slices.Insert(members, i, m)
	}
	s.v.members = members
	return Result{}
}
