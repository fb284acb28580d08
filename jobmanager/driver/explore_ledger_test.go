package driver

import (
	"strconv"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	kafkaslots "github.com/weir-stream/weir/sinks/kafka/slots"
	"github.com/weir-stream/weir/sinks/ledger"
)

// The ledger of prepared transactions and the pool of transactional ids are the product's; here are their operations as values.

// handle is a task's snapshot as it is acknowledged.
type handle struct {
	bytes        string
	committables uint32
}

func (x *explorer) handleOf(sub, pos uint8, listed []ledger.Entry[cid]) uint32 {
	out := &snapshotv1.OperatorSnapshot{Uid: "out"}
	for _, e := range listed {
		c := &snapshotv1.Committable{Checkpoint: e.Checkpoint, Version: 1, Payload: e.Committable.payload()}
		if x.durable {
			c.Records = []*snapshotv1.Segment{{Name: "kept"}}
		}
		out.Committables = append(out.Committables, c)
	}
	s := &snapshotv1.TaskSnapshot{Vertex: "v", Subtask: uint32(sub), Parallelism: uint32(x.tasks()), Operators: []*snapshotv1.OperatorSnapshot{
		{Uid: "src", OperatorStates: []*snapshotv1.OperatorState{{Name: "position", Version: 1, Entries: []*snapshotv1.OperatorStateEntry{{Key: strconv.Itoa(int(sub)), Value: []byte{pos}}}}}},
		out,
	}}
	return x.handles.number(handle{string(canonical(s)), uint32(len(listed))})
}

// The ledger as a core. The entry being committed is kept with it, since its owner holds it.
type ledgerState struct {
	l       ledger.Ledger[cid]
	current *ledger.Entry[cid]
}

type ledgerOp struct {
	kind uint8
	n    uint64
	c    cid
}

const (
	ledgerPrepare uint8 = iota
	ledgerSnapshot
	ledgerComplete
	ledgerNext
	ledgerCommitted
	ledgerSettled
)

// ledgerOut holds at most as many transactions as there are slots.
type ledgerOut struct {
	cs [slotBound]cid
	at [slotBound]uint64
	n  int
	ok bool
}

func applyLedger(s *ledgerState, op ledgerOp) (out ledgerOut) {
	list := func(cs []cid) {
		out.n = copy(out.cs[:], cs)
	}
	switch op.kind {
	case ledgerPrepare:
		out.ok = s.l.Prepare(op.n, op.c) == nil
	case ledgerSnapshot:
		es, err := s.l.Snapshot(op.n)
		out.ok = err == nil
		for _, e := range es {
			out.cs[out.n], out.at[out.n] = e.Committable, e.Checkpoint
			out.n++
		}
	case ledgerComplete:
		list(s.l.Complete(op.n))
	case ledgerNext:
		if s.current = s.l.Next(); s.current != nil {
			out.ok = true
			list([]cid{s.current.Committable})
			out.at[0] = s.current.Checkpoint
		}
	case ledgerCommitted:
		list(s.l.Committed(s.current))
		s.current = nil
	case ledgerSettled:
		out.ok = s.l.Settled(op.n)
	}
	return out
}

type poolOp struct {
	kind uint8
	slot uint8
}

const (
	poolStart uint8 = iota
	poolStarted
	poolAcquire
	poolPrepared
	poolCommitted
	poolRelease
)

type poolOut struct {
	slots [slotBound]uint8
	n     int
	ok    bool
}

func applyPool(p *kafkaslots.Pool, op poolOp) (out poolOut) {
	out.ok = true
	var err error
	switch op.kind {
	case poolStart:
		for _, s := range p.ToStart() {
			out.slots[out.n] = uint8(s)
			out.n++
		}
	case poolStarted:
		err = p.Started(int(op.slot))
	case poolAcquire:
		var slot int
		var wait bool
		if slot, wait, err = p.Acquire(); wait {
			panic("explore: ids are initialised at once")
		}
		out.slots[0] = uint8(slot)
	case poolPrepared:
		err = p.Prepared(int(op.slot))
	case poolCommitted:
		err = p.Committed(int(op.slot))
	case poolRelease:
		_, err = p.Release(int(op.slot))
	}
	out.ok = err == nil
	return out
}

// must panics when a core refuses what its owner in the product would never be refused.
func must(ok bool) {
	if !ok {
		panic("explore: a core refuses a step")
	}
}
