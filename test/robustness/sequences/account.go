package sequences

import "fmt"

// maxProblems bounds what an account remembers; one is enough to fail.
const maxProblems = 20

// Account compares results with what is right, in the order in which a read_committed reader gets them from each partition. It is not
// safe for concurrent use.
type Account struct {
	shape     Shape
	next      map[Sequence]uint64 // the record whose result is due
	counts    map[string]uint64
	partition map[string]int32

	// Results counts the results seen.
	Results uint64
	// Problems are the first results that were wrong: repeated, behind a missing one, or computed from wrong state.
	Problems []string
}

// NewAccount returns the account of one job.
func NewAccount(shape Shape) *Account {
	return &Account{shape: shape, next: make(map[Sequence]uint64), counts: make(map[string]uint64), partition: make(map[string]int32)}
}

// Add takes the next result of a partition.
func (a *Account) Add(partition int32, offset int64, r Result) {
	a.Results++
	problem := func(format string, args ...any) {
		if len(a.Problems) < maxProblems {
			at := fmt.Sprintf("partition %d, offset %d: %s of input %d, record %d: ", partition, offset, r.Key, r.Input, r.Seq)
			a.Problems = append(a.Problems, at+fmt.Sprintf(format, args...))
		}
	}
	if p, seen := a.partition[r.Key]; seen && p != partition {
		problem("earlier results of the key are in partition %d", p)
	}
	a.partition[r.Key] = partition
	due := a.due(r.Sequence)
	switch {
	case !a.shape.keeps(r.Seq):
		problem("it should have been dropped")
	case r.Seq < due:
		problem("repeated or late: the next one due is %d", due)
	case r.Seq > due:
		problem("lost, or not in order: %d was due", due)
	}
	a.next[r.Sequence] = max(due, r.Seq+1)
	if !a.shape.counts() {
		return
	}
	a.counts[r.Key]++
	if r.Count != a.counts[r.Key] || r.Own != r.Seq+1 {
		problem("wrong state: the job counted %d of its sequence and %d of its key, right is %d and %d", r.Own, r.Count, r.Seq+1, a.counts[r.Key])
	}
	a.counts[r.Key] = r.Count // one mistake is told once
}

// due returns the record of a sequence whose result comes next.
func (a *Account) due(s Sequence) uint64 {
	n := a.next[s]
	for !a.shape.keeps(n) {
		n++
	}
	return n
}

// Missing returns how many results are not there yet of what was made, and one of them.
func (a *Account) Missing(made map[Sequence]uint64) (n uint64, example string) {
	for s, total := range made {
		for seq := a.due(s); seq < total; seq++ {
			if a.shape.keeps(seq) {
				n++
				example = fmt.Sprintf("%s of input %d, record %d", s.Key, s.Input, seq)
			}
		}
	}
	return n, example
}
