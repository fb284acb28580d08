package child

import "syscall"

// Attributes makes the kernel kill the child when the thread that started it ends. The child leads a process group of its own, so that
// an interrupt at the terminal reaches the parent only.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
