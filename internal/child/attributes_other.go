//go:build unix && !linux

package child

import "syscall"

// Attributes gives the child a process group of its own. Nothing ties it to its parent on this system: whoever starts it ends it.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
