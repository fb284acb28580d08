//go:build faultpoint && unix

package faultpoint

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// Enabled reports whether the program has points.
const Enabled = true

var points = armed()

func armed() *controller {
	c, err := newController(os.Getenv(EnvPoints), os.Getenv(EnvDir), effects{
		kill:  func() { signal(syscall.SIGKILL) },
		stop:  func() { signal(syscall.SIGSTOP) },
		hang:  func() { select {} },
		delay: time.Sleep,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	return c
}

func signal(s syscall.Signal) { _ = syscall.Kill(os.Getpid(), s) }

// Hit tells that the process is at a point.
func Hit(p Point) { _ = points.reach(p) }

// Err is Hit where the code goes on with an error, which is ErrInjected.
func Err(p Point) error { return points.reach(p) }

// Is tells a fact about the process that conditions ask for, such as the attempt that a worker belongs to. A later one with the same
// name replaces it.
func Is(fact, value string) { points.is(fact, value) }
