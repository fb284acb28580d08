// Package e2e holds tests with real processes, a real Kafka and the command line: what users run is what is tested. What counts is what
// a read_committed reader of the broker sees.
//
// Tests that judge how long something takes, or load the machine, run alone; the others call t.Parallel.
package e2e
