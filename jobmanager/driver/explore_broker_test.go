package driver

import "fmt"

// The model of Kafka: transactional ids with their epochs, and one output partition for each input. It answers as the table of measured
// answers in docs/design/exactly-once.md says; the last word is the control markers', which are the two masks of an id.

// id is a transactional id at the coordinator.
type id struct {
	known   bool
	ongoing bool
	epoch   uint8
	// committed and aborted are the epochs whose transactions ended so, as control markers show them; of the aborted ones, givenUp are
	// those that nobody asked to abort.
	committed, aborted, givenUp uint16
}

// ended says what the control markers tell of the transaction of an epoch.
func (d *id) ended(epoch uint8) answer {
	switch {
	case d.committed&(1<<epoch) != 0:
		return answerCommitted
	case d.aborted&(1<<epoch) != 0:
		return answerLost
	}
	return answerOpen
}

// segment is what one transaction wrote to a partition, as long as it is open or hidden behind an open one.
type segment struct {
	from, to uint8 // records
	id       uint8
	epoch    uint8
	open     bool
	covered  bool // the log vouches for it: a completed checkpoint lists it, or it replaces one that is listed
}

// partition is one output partition. What a read_committed reader sees is a number: the records 1 to visible, in order, but for the lost
// ones.
type partition struct {
	visible  uint8
	n        uint8
	lost     uint16 // a bit for each record of which the log says that it will be seen, and of which the transaction is aborted
	segments [8]segment
}

// broker is a value: copies are independent.
type broker struct {
	ids        [maxAttempts * maxTasks * slotBound]id
	partitions [maxTasks]partition
	durable    bool // what is lost is written again, so that no reader may pass it
	// late is a copy of a request to commit that is still under way.
	late    cid
	hasLate bool
}

func idIndex(attempt, sub, slot uint8) uint8 {
	if attempt > maxAttempts || slot >= slotBound {
		panic("explore: more ids than foreseen")
	}
	return ((attempt-1)*maxTasks+sub)*slotBound + slot
}

func idName(i uint8) string {
	return fmt.Sprintf("%d.%d.%d", i/slotBound/maxTasks+1, i/slotBound%maxTasks, i%slotBound)
}

// cid is a prepared transaction: what one transactional id wrote of one input, in its producer epoch.
type cid struct {
	attempt, sub, slot, epoch uint8
	from, to                  uint8 // records
}

func (c cid) payload() []byte { return []byte{c.attempt, c.sub, c.slot, c.epoch, c.from, c.to} }

func cidOf(b []byte) cid { return cid{b[0], b[1], b[2], b[3], b[4], b[5]} }

func (c cid) String() string {
	return fmt.Sprintf("%d.%d.%d@%d[%d-%d]", c.attempt, c.sub, c.slot, c.epoch, c.from, c.to)
}

// id is its transactional id.
func (c cid) id() uint8 { return idIndex(c.attempt, c.sub, c.slot) }

// violation says which promise was broken; empty for none.
type violation string

// initialise is InitProducerId: it ends what is open and fences the writer.
func (b *broker) initialise(i uint8) (epoch uint8, v violation) {
	d := &b.ids[i]
	if d.ongoing {
		v = b.end(i, endFenced)
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

// ending is how a transaction ends.
type ending uint8

const (
	endCommitted ending = iota
	endFenced           // aborted, because its id was initialised
	endRevoked          // aborted, because the one before it is lost
	endGivenUp          // aborted by the broker
)

// end ends the open transaction of an id.
func (b *broker) end(i uint8, how ending) (v violation) {
	for k := range b.partitions {
		p := &b.partitions[k]
		for m := range p.segments[:p.n] {
			s := &p.segments[m]
			if s.id != i || !s.open {
				continue
			}
			switch {
			case how == endCommitted && !s.covered:
				v = violation(fmt.Sprintf("transaction %s, records %d to %d of input %d, was committed, and no completed checkpoint lists it", idName(i), s.from, s.to, k))
			case how == endFenced && s.covered:
				v = violation(fmt.Sprintf("transaction %s, records %d to %d of input %d, was aborted, and a completed checkpoint lists it", idName(i), s.from, s.to, k))
			}
			if how == endCommitted {
				s.open = false
			} else {
				if s.covered {
					p.lost |= bitsOf(s.from, s.to)
				}
				copy(p.segments[m:], p.segments[m+1:p.n])
				p.n--
				p.segments[p.n] = segment{}
			}
			return cmpViolation(v, p.settle(k, b.durable))
		}
	}
	return v
}

// bitsOf has a bit for each record.
func bitsOf(from, to uint8) (bits uint16) {
	for r := from; r <= to; r++ {
		bits |= 1 << r
	}
	return bits
}

// settle moves the last stable offset.
func (p *partition) settle(input int, durable bool) violation {
	for p.n > 0 && !p.segments[0].open {
		s := p.segments[0]
		passed := bitsOf(p.visible+1, s.from-1)
		if s.from <= p.visible || passed&^p.lost != 0 || passed != 0 && durable {
			return violation(fmt.Sprintf("a reader of input %d sees record %d after record %d", input, s.from, p.visible))
		}
		p.visible = s.to
		p.lost &^= bitsOf(s.from, s.to)
		copy(p.segments[:], p.segments[1:p.n])
		p.n--
		p.segments[p.n] = segment{}
	}
	return ""
}

// giveUp is the end of a transaction that took longer than its timeout. Nobody is told.
func (b *broker) giveUp(i uint8) violation {
	d := &b.ids[i]
	v := b.end(i, endGivenUp)
	d.aborted |= 1 << d.epoch
	d.givenUp |= 1 << d.epoch
	d.ongoing = false
	d.epoch++
	return v
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
	d := &b.ids[c.id()]
	if d.ongoing && d.epoch == c.epoch {
		v := b.end(c.id(), endCommitted)
		d.ongoing = false
		d.committed |= 1 << d.epoch
		if v2 {
			d.epoch++
		}
		return answerCommitted, v
	}
	return d.ended(c.epoch), ""
}

// revoke is EndTxn(abort) of a transaction by its identity.
func (b *broker) revoke(c cid) (answer, violation) {
	d := &b.ids[c.id()]
	if d.ongoing && d.epoch == c.epoch {
		v := b.end(c.id(), endRevoked)
		d.ongoing = false
		d.aborted |= 1 << d.epoch
		d.epoch++
		return answerLost, v
	}
	return d.ended(c.epoch), ""
}

// givenUp reports whether the broker aborted a transaction behind everybody's back.
func (b *broker) givenUp(c cid) bool { return b.ids[c.id()].givenUp&(1<<c.epoch) != 0 }

// alive reports whether a transaction can still be committed, or is.
func (b *broker) alive(c cid) bool { return b.ids[c.id()].aborted&(1<<c.epoch) == 0 }

// cover notes that the log vouches for transactions.
func (b *broker) cover(listed []cid) {
	for _, c := range listed {
		p := &b.partitions[c.sub]
		for k := range p.segments[:p.n] {
			if s := &p.segments[k]; s.id == c.id() && s.epoch == c.epoch {
				s.covered = true
			}
		}
		if b.givenUp(c) && c.to > p.visible {
			p.lost |= bitsOf(c.from, c.to)
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
