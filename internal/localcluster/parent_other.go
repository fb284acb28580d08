//go:build !linux

package localcluster

import "syscall"

// dieWithParent cannot tie the node to its parent on this system; Close ends it.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
