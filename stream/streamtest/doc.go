// Package streamtest runs jobs in tests and examples: in one process and on one goroutine, with sources and sinks in memory and a
// clock that is set by hand.
//
// The operators, codecs and the state backend are the real ones; records between tasks are encoded as they are between machines.
// What is missing is what tests are usually not about: the network, several processes, and time that passes by itself. Nothing
// happens between two calls, so a test sees the same every time, but for the order of the results of one window, which is not
// defined.
//
// [Run] takes a job to the end of its input. [Start] returns a [Job] to be taken there step by step, with checkpoints and restores in
// between. [NewPipe] runs a part of a job on records that are pushed in.
package streamtest
