// Package graph is the job graph: operators, edges, chaining, parallelism, uids and the fingerprint. It is pure: no I/O, no clock.
//
// A [Logical] graph is what the public API builds; [Logical.Compile] checks it, reports all of its errors together, chains operators
// into vertices and computes the fingerprint.
package graph
