package fetch

import "time"

const (
	noLeader = -1

	// The time from one try to the next, which grows while the answers do not help.
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
	// patience is how many answers in a row may be errors that pass by themselves, such as those of a broker that has just started, before
	// those are told that may be there for good. With the pauses between them it takes some five seconds.
	patience = 7
)

// topic is a topic that is read.
type topic struct {
	name       string
	id         [16]byte
	partitions []*Partition
}

// place finds a partition by the topic's id, as new brokers do, or by its name.
type place struct {
	topic string
	id    [16]byte
	index int32
}

// Partition is a partition that is read. Its fields are under the fetcher's mutex. Where it is read on does not change while a request for it is
// under way.
type Partition struct {
	topic *topic
	index int32

	leader      int32
	leaderEpoch int32 // -1 when it is not known
	olds        int   // how often metadata told an older epoch
	inFlight    bool  // a request under way asks for it
	stopped     bool  // an error was told, and nobody has moved it
	validate    bool  // the leader changed: whether it has what was read comes first
	resume      time.Time
	heard       time.Time // when the last answer about it was asked for

	next      int64
	readEpoch int32 // the leader's epoch of what was read last, -1 before
	high      int64 // -1 when it is not known
	fails     int   // answers in a row that were errors
	short     int   // answers in a row that held bytes, and no whole batch
}

// Topic returns the topic's name.
func (p *Partition) Topic() string { return p.topic.name }

// Index returns the partition's number in the topic.
func (p *Partition) Index() int32 { return p.index }

// pauseAfter returns how long to wait after the n-th failure in a row.
func pauseAfter(n int) time.Duration {
	return min(firstPause<<min(max(n-1, 0), 10), longestPause)
}

// later puts off the next try.
func (p *Partition) later(now time.Time) {
	p.fails++
	p.resume = now.Add(pauseAfter(p.fails))
}
