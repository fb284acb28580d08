package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// ErrNotRunning is returned for a process that has not been started or is gone.
var ErrNotRunning = errors.New("the process is not running")

// Process is a server that this program runs, and may end and start again. It must not be copied.
type Process struct {
	// Name is what errors call it, for example "the broker".
	Name string
	// Log is the path of the file that gets what it prints.
	Log string
	// StopTimeout is how long it may take to go after a signal before it is killed.
	StopTimeout time.Duration

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when it is gone
}

// Start starts it and returns when it exists. The flags for the log are os.O_TRUNC or os.O_APPEND. Attributes that cmd has are replaced,
// but for the credential.
func (p *Process) Start(cmd *exec.Cmd, logFlag int) error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|logFlag, 0o644)
	if err != nil {
		return err
	}
	attributes := Attributes()
	if cmd.SysProcAttr != nil {
		attributes.Credential = cmd.SysProcAttr.Credential
	}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, attributes
	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		// The parent-death signal follows the starting thread, which therefore must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		_ = log.Close()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.done = cmd, done
	return nil
}

// PID returns the process id of the last start, 0 before the first.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Done returns a channel that is closed when the process of the last start is gone; nil before the first.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Freeze stops it where it is until Thaw, and returns when all its threads stand still: a signal alone leaves it a moment for an answer.
func (p *Process) Freeze() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(p.StopTimeout); ; {
		running, err := p.running()
		if err != nil || !running {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s did not stand still within %s", p.Name, p.StopTimeout)
		}
		time.Sleep(time.Millisecond)
	}
}

// Thaw lets it go on.
func (p *Process) Thaw() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(sig syscall.Signal) error {
	pid := p.PID()
	if pid == 0 {
		return ErrNotRunning
	}
	if err := syscall.Kill(pid, sig); err != nil {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// running reports whether a thread has not stopped yet, on systems that tell.
func (p *Process) running() (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	if err != nil {
		return false, err
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return false, err
		}
		// The state follows the name, which is in parentheses.
		if i := bytes.LastIndexByte(stat, ')'); i >= 0 && i+2 < len(stat) && !bytes.ContainsRune([]byte("TtZX"), rune(stat[i+2])) {
			return true, nil
		}
	}
	return false, nil
}

// End signals it and waits until it is gone; one that does not go in time is killed.
func (p *Process) End(sig syscall.Signal) error {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return ErrNotRunning
	}
	select {
	case <-done:
		return ErrNotRunning
	default:
	}
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	limit := time.NewTimer(p.StopTimeout)
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-limit.C:
		_ = cmd.Process.Kill()
		<-done
		return fmt.Errorf("%s did not stop within %s and was killed", p.Name, p.StopTimeout)
	}
}
