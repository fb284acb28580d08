package sequences

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Partitions is the number of partitions of every topic.
const Partitions = 4

// keys is the number of keys of a job's inputs.
const keys = 200

// Shape is what a job does.
type Shape string

// The shapes.
const (
	// PassThrough drops some records and passes the others on, in the task that reads them.
	PassThrough Shape = "sequences-pass"
	// Counted counts the records of each key.
	Counted Shape = "sequences-count"
	// Merged counts the records of each key in two inputs.
	Merged Shape = "sequences-merge"
)

// Inputs returns the number of input topics.
func (s Shape) Inputs() int {
	if s == Merged {
		return 2
	}
	return 1
}

// keeps reports whether a record has a result.
func (s Shape) keeps(seq uint64) bool { return s != PassThrough || seq%5 != 3 }

// counts reports whether results tell how many records of the key there were.
func (s Shape) counts() bool { return s != PassThrough }

// Sequence names the numbered records of one key in one input.
type Sequence struct {
	Input int
	Key   string
}

// Record is one record of an input topic.
type Record struct {
	Sequence
	// Seq counts from 0.
	Seq uint64
}

// Partition returns the partition of its topic in which a record is written.
func (r Record) Partition() int32 {
	var n int32
	for _, c := range []byte(r.Key) {
		n = (n*31 + int32(c)) % Partitions
	}
	return n
}

// Encode returns the value of an input record.
func (r Record) Encode() []byte { return fmt.Appendf(nil, "%d %s %d", r.Input, r.Key, r.Seq) }

// Result is one record of the output topic.
type Result struct {
	Record
	// Own is how many records of its sequence the job's state had, with this one; Count how many of its key. Both are 0 where the job
	// does not count.
	Own, Count uint64
}

// Encode returns the value of an output record.
func (r Result) Encode() []byte {
	return fmt.Appendf(nil, "%d %s %d %d %d", r.Input, r.Key, r.Seq, r.Own, r.Count)
}

// DecodeRecord decodes the value of an input record.
func DecodeRecord(value []byte) (Record, error) {
	var r Record
	return r, decode(value, &r, nil, nil)
}

// DecodeResult decodes the value of an output record.
func DecodeResult(value []byte) (Result, error) {
	var r Result
	return r, decode(value, &r.Record, &r.Own, &r.Count)
}

func decode(value []byte, r *Record, own, count *uint64) error {
	fields := strings.Fields(string(value))
	want := 3
	if own != nil {
		want = 5
	}
	if len(fields) != want {
		return fmt.Errorf("decode %q: it has %d fields instead of %d", value, len(fields), want)
	}
	var err error
	number := func(field string) (n uint64) {
		if err == nil {
			n, err = strconv.ParseUint(field, 10, 64)
		}
		return n
	}
	r.Input, r.Key, r.Seq = int(number(fields[0])), fields[1], number(fields[2])
	if own != nil {
		*own, *count = number(fields[3]), number(fields[4])
	}
	if err != nil {
		return fmt.Errorf("decode %q: %w", value, err)
	}
	return nil
}

// Generator makes the input of one job: records of random keys and inputs. It is not safe for concurrent use.
type Generator struct {
	inputs int
	rnd    *rand.Rand
	next   map[Sequence]uint64
}

// NewGenerator returns a generator whose choices follow from the seed.
func NewGenerator(shape Shape, seed uint64) *Generator {
	return &Generator{inputs: shape.Inputs(), rnd: rand.New(rand.NewPCG(seed, 1)), next: make(map[Sequence]uint64)}
}

// Next returns the next record.
func (g *Generator) Next() Record {
	s := Sequence{Input: g.rnd.IntN(g.inputs), Key: fmt.Sprintf("key-%03d", g.rnd.IntN(keys))}
	r := Record{Sequence: s, Seq: g.next[s]}
	g.next[s]++
	return r
}

// Made returns how many records of each sequence there are.
func (g *Generator) Made() map[Sequence]uint64 { return g.next }
