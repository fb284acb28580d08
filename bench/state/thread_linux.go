package main

import "golang.org/x/sys/unix"

// ownThread asks for the times of the calling thread.
const ownThread = unix.RUSAGE_THREAD
