package supervisor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a running child with a process group of its own.
type process struct {
	cmd     *exec.Cmd
	pidFile string
	done    chan struct{} // closed when it is reaped and its group is killed

	// Valid after done. The code is -1 for a signal.
	code   int
	signal string
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill kills the whole group. After the process was reaped it does nothing.
func (p *process) kill() {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	}
}

// spawner starts processes from one thread that lives until close.
type spawner struct {
	requests chan func()
	ended    sync.WaitGroup
	waiting  sync.WaitGroup // for the goroutines that reap
	once     sync.Once
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan func())}
	s.ended.Go(func() {
		// Never unlocked: the thread ends with the goroutine, and with it whatever it started.
		runtime.LockOSThread()
		for fn := range s.requests {
			fn()
		}
	})
	return s
}

// close waits for all processes to be reaped. No start may follow.
func (s *spawner) close() {
	s.waiting.Wait()
	s.once.Do(func() { close(s.requests) })
	s.ended.Wait()
}

// outputDelay is how long a dead process's output may be held open by one that it started and that left its group.
const outputDelay = 2 * time.Second

// start starts cmd in a process group of its own, and records it in pids, if given, so that a successor can kill it.
func (s *spawner) start(cmd *exec.Cmd, pids string) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr)
	cmd.WaitDelay = outputDelay
	err := s.fork(cmd)
	for try := 0; errors.Is(err, syscall.ETXTBSY) && try < 20; try++ {
		// Another child was forked while the binary was being written and holds it open until its own exec.
		time.Sleep(5 * time.Millisecond)
		cmd = clone(cmd)
		err = s.fork(cmd)
	}
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	if pids != "" {
		p.pidFile = filepath.Join(pids, strconv.Itoa(p.pid()))
		if err := writePidFile(p.pidFile, p.pid()); err != nil {
			p.pidFile = "" // the death signal still ends it with us
		}
	}
	s.waiting.Go(p.reap)
	return p, nil
}

func (s *spawner) fork(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	s.requests <- func() { result <- cmd.Start() }
	return <-result
}

// clone returns a command that has not been started.
func clone(c *exec.Cmd) *exec.Cmd {
	return &exec.Cmd{
		Path: c.Path, Args: c.Args, Env: c.Env, Dir: c.Dir, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr,
		SysProcAttr: c.SysProcAttr, WaitDelay: c.WaitDelay,
	}
}

// reap waits for the process, kills what is left of its group while its pid still names it, and collects it.
func (p *process) reap() {
	awaitExit(p.pid())
	_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	_ = p.cmd.Wait() // the state tells how it ended
	p.code = p.cmd.ProcessState.ExitCode()
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.signal = unix.SignalName(ws.Signal())
	}
	close(p.done)
	if p.pidFile != "" {
		_ = os.Remove(p.pidFile)
	}
}
