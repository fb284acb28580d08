//go:build !linux

package main

import "golang.org/x/sys/unix"

// ownThread asks for the times of the process: there are none of a thread here.
const ownThread = unix.RUSAGE_SELF
