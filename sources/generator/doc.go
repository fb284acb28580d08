// Package generator makes numbered records: input for demos, benchmarks and tests.
//
// The numbers 0, 1, 2, … are dealt to a fixed number of splits: split s has s, s+splits, s+2·splits, … A position is how many records
// of a split have been emitted, so a restored job goes on with the same numbers, whatever its parallelism.
package generator
