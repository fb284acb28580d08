package kafkatest

import "syscall"

// dieWithParent makes the kernel kill the child when the thread that started it ends. The child leads a process group of its own,
// so that an interrupt at the terminal reaches the parent only.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
