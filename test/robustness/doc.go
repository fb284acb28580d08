// Package robustness runs jobs on a cluster of processes and a real Kafka under load, lets random things happen to them, and compares
// what a read_committed reader sees with the only right answer. The faults follow from a seed, which a failed run prints; their effects
// also depend on timing, so a seed narrows a failure down rather than repeating it exactly. With an
// odd seed every connection of the cluster is under TLS.
package robustness
