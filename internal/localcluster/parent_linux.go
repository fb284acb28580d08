package localcluster

import "syscall"

// dieWithParent makes the kernel kill the node when the program that runs the cluster is killed.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
