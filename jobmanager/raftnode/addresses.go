package raftnode

import (
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// addresses tells where a member is. It believes, in this order: what a member that has moved has said; the log, when it has changed
// since this process began; the configured list, which is how all members can move at once, and which may differ from member to
// member; and the log.
type addresses struct {
	self Member

	mu     sync.Mutex
	listed map[string]string
	moved  map[string]string
	base   map[string]string // the log's when it was first seen
	raft   *raft.Raft        // nil until it runs
}

var _ raft.ServerAddressProvider = (*addresses)(nil)

func newAddresses(id, address string, listed []Member) *addresses {
	a := &addresses{self: Member{ID: id, Address: address}, listed: map[string]string{}, moved: map[string]string{}, base: map[string]string{}}
	for _, m := range listed {
		a.listed[m.ID] = m.Address
	}
	return a
}

// follow begins to take the log into account.
func (a *addresses) follow(r *raft.Raft) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raft = r
}

// move notes what a member has said.
func (a *addresses) move(id, address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.moved[id] = address
}

// unrecorded tells whether a member has moved to where the log does not say it is.
func (a *addresses) unrecorded(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	to, ok := a.moved[id]
	return ok && to != a.logged(id)
}

// inLog returns the log's address of a member; empty when it has none.
func (a *addresses) inLog(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.logged(id)
}

// logged returns the log's address of a member; empty when it has none.
func (a *addresses) logged(id string) string {
	if a.raft != nil {
		for _, s := range a.raft.GetConfiguration().Configuration().Servers {
			if string(s.ID) == id {
				return string(s.Address)
			}
		}
	}
	return ""
}

// ServerAddr implements raft.ServerAddressProvider.
func (a *addresses) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if to, ok := a.moved[string(id)]; ok {
		return raft.ServerAddress(to), nil
	}
	logged := a.logged(string(id))
	if _, seen := a.base[string(id)]; !seen && logged != "" {
		a.base[string(id)] = logged
	}
	listed, ok := a.listed[string(id)]
	switch {
	case logged != "" && (!ok || logged != a.base[string(id)]):
		return raft.ServerAddress(logged), nil
	case ok:
		return raft.ServerAddress(listed), nil
	case string(id) == a.self.ID:
		return raft.ServerAddress(a.self.Address), nil
	case a.raft == nil:
		return "", fmt.Errorf("address of member %s: %w", id, errStarting)
	}
	return "", fmt.Errorf("member %s is neither configured nor in the cluster", id)
}

// others returns all members known from the list and the log but this one.
func (a *addresses) others() []Member {
	ids := map[string]bool{}
	a.mu.Lock()
	for id := range a.listed {
		ids[id] = true
	}
	if a.raft != nil {
		for _, s := range a.raft.GetConfiguration().Configuration().Servers {
			ids[string(s.ID)] = true
		}
	}
	a.mu.Unlock()
	var out []Member
	for id := range ids {
		if id == a.self.ID {
			continue
		}
		if at, err := a.ServerAddr(raft.ServerID(id)); err == nil {
			out = append(out, Member{ID: id, Address: string(at)})
		}
	}
	return out
}
