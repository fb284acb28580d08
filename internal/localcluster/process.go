package localcluster

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-stream/weir/internal/child"
)

// Role is what a process does in the cluster.
type Role string

// The roles.
const (
	JobManager  Role = "jobmanager"
	TaskManager Role = "taskmanager"
	// Worker is a process that a TaskManager has started; it is no Process of its own.
	Worker Role = "worker"
)

// Process is one node. It can be ended and started again.
type Process struct {
	Role Role
	// ID is the node's name in the cluster, for example "jm1".
	ID string
	// Address is the gRPC address that a JobManager advertises; Admin is the address of metrics and health.
	Address, Admin string

	binary, config, log string
	environment         []string // added to this process's own

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
	err    error
}

// Start starts the process; it is an error when it runs.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		select {
		case <-p.exited:
		default:
			return fmt.Errorf("%s runs already, pid %d", p.ID, p.cmd.Process.Pid)
		}
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.binary, string(p.Role), "--config", p.config)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = filepath.Dir(p.config)
	cmd.Env = append(os.Environ(), p.environment...)
	cmd.SysProcAttr = child.Attributes()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.ID, err)
	}
	exited := make(chan struct{})
	p.cmd, p.exited, p.err = cmd, exited, nil
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(exited)
	}()
	return nil
}

// PID returns the process id, 0 before the first start.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Running reports whether the process runs.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Signal sends a signal.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s was never started", p.ID)
	}
	return p.cmd.Process.Signal(sig)
}

// Children returns the ids of the live processes that this one has started, in ascending order: the workers of a TaskManager. It knows
// them on Linux only.
func (p *Process) Children() []int {
	var out []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		// The command name is in parentheses and may hold spaces; state and parent follow it.
		_, rest, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil && parent == p.PID() {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}

// Kill ends the process as a power failure would (SIGKILL) and waits until it is gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", p.ID, err)
	}
	<-p.exitChannel()
	return nil
}

// Stop asks the process to end (SIGTERM), waits at most timeout, then kills it, which is an error.
func (p *Process) Stop(timeout time.Duration) error {
	if !p.Running() {
		return nil
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.ID, err)
	}
	select {
	case <-p.exitChannel():
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err != nil {
			return fmt.Errorf("%s: %w", p.ID, p.err)
		}
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("%s did not stop within %s: %w", p.ID, timeout, p.Kill())
	}
}

// Wait waits until the process has exited and returns its result.
func (p *Process) Wait() error {
	<-p.exitChannel()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// LogTail returns the last lines of the process's output.
func (p *Process) LogTail(lines int) string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	end := all[max(0, len(all)-lines):]
	// Of a crash the first lines tell most, and the stacks of all goroutines follow.
	died := slices.IndexFunc(all, func(line string) bool {
		return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "SIG")
	})
	if crash := max(0, died-5); died >= 0 && crash < len(all)-lines {
		end = append(slices.Clone(all[crash:min(crash+lines, len(all)-lines)]), append([]string{"[…]"}, end...)...)
	}
	return strings.Join(end, "\n")
}

func (p *Process) exitChannel() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exited
}
