// Package keygroup maps keys to key groups and key groups to subtasks.
//
// The mapping is part of the on-disk format: a checkpoint's state is filed by key group, and records are routed by it. It is
// XXH64 (seed 0) of the key's canonical encoding, reduced modulo the maximum parallelism. It must never change; the vectors in
// the test hold it fixed.
package keygroup

import "github.com/cespare/xxhash/v2"

// DefaultMaxParallelism is the number of key groups of a job that does not choose one.
const DefaultMaxParallelism = 128

// MaxMaxParallelism is the largest number of key groups a job may choose: a key group must fit in two bytes.
const MaxMaxParallelism = 1 << 15

// Range is a closed range of key groups, First to Last inclusive.
type Range struct {
	First, Last int
}

// Contains reports whether g lies in the range.
func (r Range) Contains(g int) bool { return g >= r.First && g <= r.Last }

// Overlaps reports whether the two ranges share a key group.
func (r Range) Overlaps(o Range) bool { return r.First <= o.Last && o.First <= r.Last }

// Len returns the number of key groups in the range.
func (r Range) Len() int { return r.Last - r.First + 1 }

// Of returns the key group of a key with the given canonical encoding.
func Of(key []byte, maxParallelism int) int {
	return int(xxhash.Sum64(key) % uint64(maxParallelism))
}

// OfString is Of for a key whose canonical encoding is the string's bytes.
func OfString(key string, maxParallelism int) int {
	return int(xxhash.Sum64String(key) % uint64(maxParallelism))
}

// Subtask returns the subtask that owns key group g.
func Subtask(g, parallelism, maxParallelism int) int {
	return g * parallelism / maxParallelism
}

// RangeOf returns the key groups that a subtask owns. Every key group belongs to exactly one subtask.
func RangeOf(subtask, parallelism, maxParallelism int) Range {
	return Range{
		First: (subtask*maxParallelism + parallelism - 1) / parallelism,
		Last:  ((subtask+1)*maxParallelism - 1) / parallelism,
	}
}
