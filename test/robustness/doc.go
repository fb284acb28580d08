// Package robustness runs jobs of several shapes on a cluster of processes and a real Kafka under load, lets random things happen to
// them, often several at once, and compares what a read_committed reader sees with the only right answer. A run is cut into windows,
// each with jobs and topics of its own, so that a failure is found soon and the faults before it are few. The faults follow from a seed,
// which a failed run prints; their effects also depend on timing, so a seed narrows a failure down rather than repeating it exactly.
// With an odd seed every connection of the cluster is under TLS.
package robustness
