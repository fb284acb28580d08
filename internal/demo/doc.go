// Package demo shows that nothing is lost and nothing seen twice: it runs a cluster of real processes, feeds numbered orders to a job
// that sums them in windows, kills processes meanwhile, and compares what a read_committed reader saw with the right answer.
package demo
