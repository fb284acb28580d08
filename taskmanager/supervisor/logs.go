package supervisor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
)

const (
	// chunkBytes is the size of one piece of a log on its way to the leader.
	chunkBytes = 256 << 10
	// maxReadBytes bounds one answer, since it waits in memory until the session takes it. The newest output is kept.
	maxReadBytes = 16 << 20
)

func (s *Supervisor) logPath(job string, attempt uint64) string {
	return filepath.Join(s.cfg.Dir, "logs", job, strconv.FormatUint(attempt, 10)+".log")
}

// ReadLogs reports the kept output of a job's workers in chunks.
func (s *Supervisor) ReadLogs(m *clusterv1.ReadLogs) {
	s.goRun(func(ctx context.Context) {
		end := &clusterv1.LogChunk{ReadId: m.GetReadId(), End: true}
		if err := s.readLogs(ctx, m); err != nil {
			end.Error = err.Error()
		}
		s.reportChunk(end)
	})
}

func (s *Supervisor) reportChunk(c *clusterv1.LogChunk) {
	s.cfg.Report(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_LogChunk{LogChunk: c}})
}

func (s *Supervisor) readLogs(ctx context.Context, m *clusterv1.ReadLogs) error {
	if !plainName(m.GetJobId()) {
		return fmt.Errorf("%q is not a job id", m.GetJobId())
	}
	attempts := []uint64{m.GetAttempt()}
	if m.GetAttempt() == 0 {
		var err error
		if attempts, err = s.keptAttempts(m.GetJobId()); err != nil {
			return err
		}
	}
	left := int64(maxReadBytes)
	var answers []*clusterv1.LogChunk // newest attempt first
	for _, a := range slices.Backward(attempts) {
		text, cut, err := readKept(s.logPath(m.GetJobId(), a), left)
		if err != nil {
			return err
		}
		if n := int(m.GetTailLines()); n > 0 {
			text = lastLines(text, n)
		} else if cut {
			text = append([]byte("(older output is kept but left out: it is too long for one answer)\n"), text...)
		}
		answers = append(answers, &clusterv1.LogChunk{ReadId: m.GetReadId(), Attempt: a, Chunk: text})
		if left -= int64(len(text)); left <= 0 {
			break
		}
	}
	for _, a := range slices.Backward(answers) {
		for part := range slices.Chunk(a.Chunk, chunkBytes) {
			if ctx.Err() != nil {
				return errors.New("the TaskManager is stopping")
			}
			s.reportChunk(&clusterv1.LogChunk{ReadId: a.ReadId, Attempt: a.Attempt, Chunk: part})
		}
	}
	return nil
}

// keptAttempts lists the attempts of a job with kept output, ascending.
func (s *Supervisor) keptAttempts(job string) ([]uint64, error) {
	entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, "logs", job))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".log"); ok {
			if n, err := strconv.ParseUint(name, 10, 64); err == nil {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// readKept returns the last limit bytes of a worker's output, whole lines where it was cut.
func readKept(path string, limit int64) (text []byte, cut bool, err error) {
	for _, p := range []string{path + rotatedSuffix, path} {
		b, err := os.ReadFile(p)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, false, err
		}
		text = append(text, b...)
	}
	if int64(len(text)) <= limit {
		return text, false, nil
	}
	text = text[int64(len(text))-limit:]
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	return text, true, nil
}

func lastLines(text []byte, n int) []byte {
	end := len(bytes.TrimRight(text, "\n"))
	for i := end; ; {
		i = bytes.LastIndexByte(text[:i], '\n')
		if i < 0 {
			return text
		}
		if n--; n == 0 {
			return text[i+1:]
		}
	}
}

// pruneLogs removes the oldest logs of ended workers beyond the bound.
func (s *Supervisor) pruneLogs() {
	type file struct {
		path string
		size int64
		used time.Time
	}
	live := map[string]bool{}
	s.mu.Lock()
	for k := range s.workers {
		p := s.logPath(k.job, k.attempt)
		live[p], live[p+rotatedSuffix] = true, true
	}
	s.mu.Unlock()
	var files []file
	var total int64
	root := filepath.Join(s.cfg.Dir, "logs")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		total += info.Size()
		if !live[path] {
			files = append(files, file{path, info.Size(), info.ModTime()})
		}
		return nil
	})
	if err != nil {
		s.cfg.Logger.Warn("logs not pruned", "err", err)
		return
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(b.path, a.path)) })
	for _, f := range files {
		if total <= s.cfg.LogRetention {
			return
		}
		if err := os.Remove(f.path); err != nil {
			s.cfg.Logger.Warn("old log not removed", "file", f.path, "err", err)
			continue
		}
		total -= f.size
		_ = os.Remove(filepath.Dir(f.path)) // succeeds for the job's last log only
	}
}
