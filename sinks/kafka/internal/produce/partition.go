package produce

import (
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// topic is a topic that is written to. Until its partitions are known its records wait as they are.
type topic struct {
	name       string
	id         [16]byte
	limit      int // bytes of a batch
	partitions []*partition
	sticky     *partition // takes records without a key, until its batch is full or leaves
	waiting    []record
	// asked tells that its partitions are asked for or have to be.
	asked bool
}

// wanted tells that something waits to be written.
func (t *topic) wanted() bool {
	for _, p := range t.partitions {
		if !p.idle() {
			return true
		}
	}
	return len(t.waiting) > 0
}

// record is one that waits for its topic.
type record struct {
	partition  int32
	key, value []byte
	headers    []kgo.RecordHeader
	millis     int64
}

// partition is what is written to one partition.
type partition struct {
	topic  *topic
	index  int32
	leader int32 // -1: not known
	// Batches in the order in which they were filled: flying was sent or is to be sent again, full ones wait for it, open takes records.
	flying   *batch
	full     []*batch
	open     *batch
	leaves   time.Time // when open has lingered
	pushed   bool      // open does not linger
	sequence int32     // of the next batch
	// inFlight tells that a request with flying is under way; it is not sent again before resend.
	inFlight bool
	resend   time.Time
	pause    time.Duration
	// joined tells that the coordinator knows of the partition in this transaction, which only the first protocol asks for.
	joined, joining bool
	listed          bool // among the writer's active ones
}

// next returns the batch to send now, or the time when to look again, which is zero when nothing waits.
func (p *partition) next(now time.Time, hurry bool) (*batch, time.Time) {
	switch {
	case p.inFlight:
		return nil, time.Time{}
	case p.flying != nil:
		if now.Before(p.resend) {
			return nil, p.resend
		}
	case len(p.full) > 0:
		p.flying = p.full[0]
		p.full[0] = nil
		p.full = p.full[1:]
	case p.open != nil:
		if !hurry && !p.pushed && now.Before(p.leaves) {
			return nil, p.leaves
		}
		p.flying, p.open = p.open, nil
		if p.topic.sticky == p {
			p.topic.sticky = nil
		}
	}
	return p.flying, time.Time{}
}

// later puts off the next try.
func (p *partition) later() {
	p.pause = min(max(2*p.pause, firstPause), longestPause)
	p.resend = time.Now().Add(p.pause)
}

func (p *partition) idle() bool { return p.flying == nil && len(p.full) == 0 && p.open == nil }

// choose returns the partition of a record; wanted is negative for the writer's own choice.
func (t *topic) choose(wanted int32, key []byte, ignoreKeys bool) (*partition, bool) {
	n := len(t.partitions)
	switch {
	case wanted >= 0:
		if int(wanted) >= n {
			return nil, false
		}
		return t.partitions[wanted], true
	case key != nil && !ignoreKeys:
		return t.partitions[int(murmur2(key)&0x7fffffff)%n], true
	}
	if t.sticky == nil {
		t.sticky = t.partitions[rand.IntN(n)]
		if t.sticky.leader < 0 { // another one may have a leader
			var led []*partition
			for _, p := range t.partitions {
				if p.leader >= 0 {
					led = append(led, p)
				}
			}
			if len(led) > 0 {
				t.sticky = led[rand.IntN(len(led))]
			}
		}
	}
	return t.sticky, true
}

// murmur2 is the hash by which Kafka's Java client spreads keys.
func murmur2(b []byte) uint32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(b[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
