// Package harness holds what the end-to-end and robustness tests share: the weir binary and the test jobs built once, a cluster of
// processes, a real broker, the command line as a user would type it.
package harness
