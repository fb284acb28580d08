package raftnode

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// introduction is what a member tells about itself. Fields are only ever added.
type introduction struct {
	ID       string `json:"id"`
	HasState bool   `json:"has_state"`
	Address  string `json:"address,omitempty"`
	Level    uint32 `json:"level,omitempty"`
	// Term is the highest term seen; 0 from a member that is starting or has no state.
	Term uint64 `json:"term,omitempty"`
	// Fresh: the state is the first configuration and nothing else; nobody has stood for election yet.
	Fresh bool `json:"fresh,omitempty"`
	// Listed is the configured list of members, without the addresses: they may differ by where one looks from.
	Listed []string `json:"listed,omitempty"`
	// Leader and Members are the leader and the ids of the present configuration as this member knows them.
	Leader  string   `json:"leader,omitempty"`
	Members []string `json:"members,omitempty"`
	// Applied is the last position of the log that it has applied.
	Applied uint64 `json:"applied,omitempty"`
	// Trouble is why it does not take part, or may not be able to soon.
	Trouble string `json:"trouble,omitempty"`
}

// request goes with kindAdmit and kindAnnounce.
type request struct {
	// ID is who is admitted, or who announces itself.
	ID string `json:"id"`
	// Address is where the announcing member is.
	Address string `json:"address,omitempty"`
	// From is the leader that admits.
	From string `json:"from,omitempty"`
}

// converse answers one question and closes the connection.
func (s *streamLayer) converse(c net.Conn, kind byte) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(enquiryTimeout))
	if kind != kindEnquiry {
		var req request
		if err := json.NewDecoder(io.LimitReader(c, maxEnquiryBytes)).Decode(&req); err != nil {
			return
		}
		if kind == kindAdmit {
			s.talk.admit(req)
		} else {
			s.talk.announced(req)
		}
	}
	_ = json.NewEncoder(c).Encode(s.talk.introduce())
}

// ask puts a question to the member at an address; req is nil for an enquiry.
func (s *streamLayer) ask(ctx context.Context, to string, kind byte, req *request) (introduction, error) {
	var a introduction
	c, err := dialKind(ctx, s.tls, to, kind, enquiryTimeout)
	if err != nil {
		return a, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_ = c.SetDeadline(time.Now().Add(enquiryTimeout))
	if req != nil {
		if err := json.NewEncoder(c).Encode(req); err != nil {
			return a, err
		}
	}
	if err := json.NewDecoder(io.LimitReader(c, maxEnquiryBytes)).Decode(&a); err != nil {
		return a, fmt.Errorf("answer of %s: %w", to, err)
	}
	return a, nil
}

// askFor is ask for a member that must have this id.
func (s *streamLayer) askFor(ctx context.Context, id, at string, kind byte, req *request) (introduction, error) {
	a, err := s.ask(ctx, at, kind, req)
	if err == nil && a.ID != id {
		err = fmt.Errorf("member at %s calls itself %q, not %q", at, a.ID, id)
	}
	return a, err
}

// Introduction is what a member tells about itself.
type Introduction struct {
	// ServiceAddress and Level are those of its [Config]; zero from a member that is too old to tell.
	ServiceAddress string
	Level          uint32
	// Empty: it has no state yet, because it is new or has lost its directory.
	Empty bool
	// Trouble is why it does not take part, or may not be able to soon; empty when all is well.
	Trouble string
}

// Introduce asks the member with this id, within a few seconds, who it is. An error means that it is not reached at the address.
func (n *Node) Introduce(ctx context.Context, id, at string) (Introduction, error) {
	a, err := n.stream.askFor(ctx, id, at, kindEnquiry, nil)
	if err != nil {
		return Introduction{}, err
	}
	return Introduction{ServiceAddress: a.Address, Level: a.Level, Empty: !a.HasState, Trouble: a.Trouble}, nil
}
