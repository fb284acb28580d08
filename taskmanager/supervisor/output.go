package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// The end of a worker's output that goes into reports: this many lines, each cut to so many bytes.
const (
	tailLines     = 50
	tailLineBytes = 1024
)

// rotatedSuffix marks the older half of a worker's output.
const rotatedSuffix = ".1"

// output keeps what a process prints: in a file of bounded size, of which the older half is replaced whenever the newer one is full,
// and its last lines in memory. A disk that cannot be written to costs output, never the worker.
type output struct {
	mu    sync.Mutex
	path  string
	limit int64 // of one half
	file  *os.File
	size  int64
	tail  [][]byte // whole lines, oldest first
	line  []byte   // the line begun
	crash []byte   // the last line with which the Go runtime says why it ends the process
	since int      // whole lines after crash
}

// crashPrefixes begin a line with which the Go runtime ends a process; stacks and registers follow.
var crashPrefixes = [][]byte{[]byte("panic: "), []byte("fatal error: ")}

// openOutput opens the log of a worker for appending. The result can be used even with an error.
func (s *Supervisor) openOutput(key attemptKey) (*output, error) {
	o := &output{path: s.logPath(key.job, key.attempt), limit: s.cfg.LogPerWorker / 2}
	if err := os.MkdirAll(filepath.Dir(o.path), 0o700); err != nil {
		return o, err
	}
	return o, o.open(os.O_APPEND)
}

func (o *output) open(flag int) error {
	f, err := os.OpenFile(o.path, os.O_CREATE|os.O_WRONLY|flag, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	o.file, o.size = f, info.Size()
	return nil
}

// Write implements io.Writer. It never fails, so that the process is never blocked by its log.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.remember(p)
	if o.file == nil {
		return len(p), nil
	}
	if o.size+int64(len(p)) > o.limit && o.size > 0 {
		o.rotate()
	}
	if o.file != nil {
		n, _ := o.file.Write(p)
		o.size += int64(n)
	}
	return len(p), nil
}

func (o *output) rotate() {
	_ = o.file.Close()
	o.file = nil
	if err := os.Rename(o.path, o.path+rotatedSuffix); err == nil {
		_ = o.open(os.O_TRUNC)
	}
}

func (o *output) remember(p []byte) {
	for len(p) > 0 {
		part, rest, whole := bytes.Cut(p, []byte{'\n'})
		if room := tailLineBytes - len(o.line); room > 0 {
			o.line = append(o.line, part[:min(room, len(part))]...)
		}
		if whole {
			if len(o.tail) == tailLines {
				o.tail = o.tail[1:]
			}
			o.tail = append(o.tail, o.line)
			o.since++
			for _, prefix := range crashPrefixes {
				if bytes.HasPrefix(o.line, prefix) {
					o.crash, o.since = o.line, 0
				}
			}
			o.line = nil
		}
		p = rest
	}
}

// crashLine returns the line with which the Go runtime said why it ends the process, empty for none.
func (o *output) crashLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.ToValidUTF8(string(o.crash), "�")
}

// tailText returns the last lines, and before them the crash line when the stacks after it have pushed it out.
func (o *output) tailText() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b strings.Builder
	if o.crash != nil && o.since >= tailLines {
		fmt.Fprintf(&b, "%s\n[...]\n", o.crash)
	}
	for _, l := range append(o.tail[:len(o.tail):len(o.tail)], o.line) {
		if len(l) > 0 {
			fmt.Fprintf(&b, "%s\n", l)
		}
	}
	return strings.ToValidUTF8(b.String(), "�")
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil {
		_ = o.file.Close()
		o.file = nil
	}
}
