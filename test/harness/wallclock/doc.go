// Package wallclock makes binaries whose wall clock a test can set, while their monotonic clock and the machine's own stay as they are.
//
// A binary is built with an overlay of package time: Now adds an offset that it reads from a file mapped into memory. Processes that share
// the file jump together, at the moment it is written; one with a file of its own is a machine whose clock is off. Everything that is
// written in Go is affected, the standard library and all dependencies included; the kernel (times of files) and C code are not.
package wallclock
