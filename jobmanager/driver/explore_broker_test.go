package driver

import "fmt"

// The model of Kafka: transactional ids with their epochs, and one output partition for each input. It answers as the table of measured
// answers in docs/design/exactly-once.md says; the last word is the control markers', which are the two masks of an id.

// id is a transactional id at the coordinator.
type id struct {
	known   bool
	ongoing bool
	epoch   uint8
	// committed and aborted are the epochs whose transactions ended so, as control markers show them.
	committed, aborted uint16
}

// segment is what one transaction wrote to a partition, as long as it is open or hidden behind an open one.
type segment struct {
	from, to uint8 // records
	id       uint8
	epoch    uint8
	open     bool
	covered  bool // some completed checkpoint lists it
}

// partition is one output partition. What a read_committed reader sees is a number: the records 1 to visible, in order.
type partition struct {
	visible  uint8
	segments [6]segment
	n        uint8
}

const maxAttempts = 5

// broker is a value: copies are independent.
type broker struct {
	ids        [maxAttempts * parallelism * slotBound]id
	partitions [parallelism]partition
	// late is a copy of a request to commit that is still under way.
	late    cid
	hasLate bool
}

func idIndex(attempt, sub, slot uint8) uint8 {
	if attempt > maxAttempts || slot >= slotBound {
		panic("explore: more ids than foreseen")
	}
	return ((attempt-1)*parallelism+sub)*slotBound + slot
}

func idName(i uint8) string {
	return fmt.Sprintf("%d.%d.%d", i/slotBound/parallelism+1, i/slotBound%parallelism, i%slotBound)
}

// violation says which promise was broken; empty for none.
type violation string

// initialise is InitProducerId: it ends what is open and fences the writer.
func (b *broker) initialise(i uint8) (epoch uint8, v violation) {
	d := &b.ids[i]
	if d.ongoing {
		v = b.end(i, false)
		d.aborted |= 1 << d.epoch
		d.ongoing = false
	}
	if d.known {
		d.epoch++
	}
	d.known = true
	if d.epoch >= 16 {
		panic("explore: more epochs than foreseen")
	}
	return d.epoch, v
}

// produce writes a record, which begins a transaction where none is open.
func (b *broker) produce(i, epoch, sub, record uint8) (fenced bool) {
	d := &b.ids[i]
	if !d.known || d.epoch != epoch {
		return true
	}
	p := &b.partitions[sub]
	if d.ongoing {
		for k := range p.segments[:p.n] {
			if s := &p.segments[k]; s.id == i && s.open {
				s.to = record
				return false
			}
		}
		panic("explore: an open transaction without a segment")
	}
	d.ongoing = true
	p.segments[p.n] = segment{from: record, to: record, id: i, epoch: epoch, open: true}
	p.n++
	return false
}

// end ends the open transaction of an id.
func (b *broker) end(i uint8, commit bool) (v violation) {
	for k := range b.partitions {
		p := &b.partitions[k]
		for m := range p.segments[:p.n] {
			s := &p.segments[m]
			if s.id != i || !s.open {
				continue
			}
			switch {
			case commit && !s.covered:
				v = violation(fmt.Sprintf("transaction %s, records %d to %d of input %d, was committed, and no completed checkpoint lists it", idName(i), s.from, s.to, k))
			case !commit && s.covered:
				v = violation(fmt.Sprintf("transaction %s, records %d to %d of input %d, was aborted, and a completed checkpoint lists it", idName(i), s.from, s.to, k))
			}
			if !commit {
				copy(p.segments[m:], p.segments[m+1:p.n])
				p.n--
				p.segments[p.n] = segment{}
			} else {
				s.open = false
			}
			if w := p.settle(k); w != "" && v == "" {
				v = w
			}
			return v
		}
	}
	return v
}

// settle moves the last stable offset.
func (p *partition) settle(input int) violation {
	for p.n > 0 && !p.segments[0].open {
		s := p.segments[0]
		if s.from != p.visible+1 {
			return violation(fmt.Sprintf("a reader of input %d sees record %d after record %d", input, s.from, p.visible))
		}
		p.visible = s.to
		copy(p.segments[:], p.segments[1:p.n])
		p.n--
		p.segments[p.n] = segment{}
	}
	return ""
}

// answer is what the sink makes of the answer to EndTxn(commit), control markers included.
type answer uint8

const (
	answerCommitted answer = iota
	answerLost
	answerOpen // not decided: again
)

// commit is EndTxn(commit) of a transaction by its identity, with transactions v2 or v1.
func (b *broker) commit(c cid, v2 bool) (answer, violation) {
	i := idIndex(c.attempt, c.sub, c.slot)
	d := &b.ids[i]
	if d.ongoing && d.epoch == c.epoch {
		v := b.end(i, true)
		d.ongoing = false
		d.committed |= 1 << d.epoch
		if v2 {
			d.epoch++
		}
		return answerCommitted, v
	}
	switch {
	case d.committed&(1<<c.epoch) != 0:
		return answerCommitted, ""
	case d.aborted&(1<<c.epoch) != 0:
		return answerLost, ""
	}
	return answerOpen, ""
}

// cover notes that a checkpoint which lists the transactions is complete.
func (b *broker) cover(listed []cid) {
	for _, c := range listed {
		i := idIndex(c.attempt, c.sub, c.slot)
		p := &b.partitions[c.sub]
		for k := range p.segments[:p.n] {
			if s := &p.segments[k]; s.id == i && s.epoch == c.epoch {
				s.covered = true
			}
		}
	}
}

// open counts open transactions.
func (b *broker) open() int {
	n := 0
	for _, d := range b.ids {
		if d.ongoing {
			n++
		}
	}
	return n
}
