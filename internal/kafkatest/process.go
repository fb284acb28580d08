package kafkatest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/weir-stream/weir/internal/child"
)

// process is the broker's JVM. A goroutine of its own starts it and waits for it.
type process struct {
	logPath     string
	stopTimeout time.Duration

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the JVM is gone
}

var errNotRunning = errors.New("the broker is not running")

// run starts the JVM and returns when it exists.
func (p *process) run(java string, args []string) error {
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command(java, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = child.Attributes()
	started := make(chan error, 1)
	done := make(chan struct{})
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
		return fmt.Errorf("start the broker: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.done = cmd, done
	return nil
}

func (p *process) current() (*exec.Cmd, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd, p.done
}

// end signals the JVM and waits until it is gone; one that does not go in time is killed.
func (p *process) end(sig syscall.Signal) error {
	cmd, done := p.current()
	if cmd == nil {
		return errNotRunning
	}
	select {
	case <-done:
		return errNotRunning
	default:
	}
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal the broker: %w", err)
	}
	limit := time.NewTimer(p.stopTimeout)
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-limit.C:
		_ = cmd.Process.Kill()
		<-done
		return fmt.Errorf("the broker did not stop within %s and was killed", p.stopTimeout)
	}
}
