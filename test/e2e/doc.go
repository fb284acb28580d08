// Package e2e holds tests with real processes, a real Kafka and the command line: what users run is what is tested. What counts is what
// a read_committed reader of the broker sees.
package e2e
