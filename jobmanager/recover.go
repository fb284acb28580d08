package jobmanager

import (
	"fmt"

	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
)

// Recovery is what the data directory of a JobManager holds.
type Recovery struct {
	ClusterID string
	// Last and Term are the position and the term of the last entry of its log.
	Last, Term uint64
	Jobs       int
	Members    []Member
}

// Recover tells what the data directory of a JobManager that does not run holds and, with act, makes that JobManager the only one of
// its cluster. See [raftnode.Recover] for what is lost by it.
func Recover(dir string, self Member, act bool) (Recovery, error) {
	if err := checkIdentity(dir, self.ID); err != nil {
		return Recovery{}, err
	}
	machine := fsm.NewMachine()
	found, err := raftnode.Inspect(dir, machine)
	if err != nil {
		return Recovery{}, err
	}
	view := machine.View()
	r := Recovery{ClusterID: view.ClusterID(), Last: found.Last, Term: found.Term, Jobs: len(view.Jobs())}
	for _, s := range found.Members {
		r.Members = append(r.Members, Member{ID: s.ID, RaftAddress: s.Address})
	}
	if !act {
		return r, nil
	}
	if _, err := raftnode.Recover(dir, raftnode.Member{ID: self.ID, Address: self.RaftAddress}, fsm.NewMachine()); err != nil {
		return r, fmt.Errorf("recover %s: %w", dir, err)
	}
	return r, nil
}
