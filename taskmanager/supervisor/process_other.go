//go:build !linux

package supervisor

import (
	"errors"
	"syscall"
)

// dieWithParent does nothing: without a death signal a worker ends when its control socket closes.
func dieWithParent(*syscall.SysProcAttr) {}

// awaitExit does nothing: the group is killed when the process is asked for, which ends nothing that is still wanted only after Wait.
func awaitExit(int) {}

// isolate reports that there are no network namespaces.
func isolate(*syscall.SysProcAttr) bool { return false }

// startMark has no source on this system.
func startMark(int) (string, error) { return "", errors.ErrUnsupported }
