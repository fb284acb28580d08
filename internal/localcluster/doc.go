// Package localcluster runs a Weir cluster as real processes of the weir binary on loopback: the demo and the end-to-end tests start,
// kill and restart its nodes as an operator's machines would.
//
// A [Cluster] owns its processes; Close ends them all. Nodes keep their ports and data directories over a restart. Methods are safe
// for concurrent use.
package localcluster
