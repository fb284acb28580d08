package robustness_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/test/harness"
)

// retained asks which checkpoints of a job can be restored from: their metadata files by id.
func (w *world) retained(id string) (map[uint64]string, error) {
	r := w.c.Weir("checkpoints", id, "-o", "json")
	if r.Code != 0 {
		return nil, errors.New(r.Stderr)
	}
	var list struct {
		Checkpoints []struct {
			ID    uint64 `json:"id,string"`
			Path  string `json:"path"`
			State string `json:"state"`
		} `json:"checkpoints"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &list); err != nil {
		return nil, err
	}
	out := make(map[uint64]string)
	for _, cp := range list.Checkpoints {
		if cp.State == "completed" && strings.Contains(cp.Path, "/jobs/"+id+"/checkpoints/") {
			out[cp.ID] = cp.Path
		}
	}
	return out, nil
}

// lastCheckpoint returns the newest checkpoint that a stopped job keeps.
func (l *life) lastCheckpoint() (newest uint64, err error) {
	for deadline := time.Now().Add(time.Minute); ; {
		kept, err := l.w.retained(l.id)
		if err == nil {
			for id := range kept {
				newest = max(newest, id)
			}
			if newest == 0 {
				err = fmt.Errorf("%s was stopped and keeps no checkpoint", l)
			}
			return newest, err
		}
		if time.Now().After(deadline) {
			return 0, err
		}
	}
}

// storageOf returns what is on checkpoint storage for a job, by names below the root.
func (w *world) storageOf(id string) (map[string]bool, error) {
	root := filepath.Join(w.c.Dir, "storage")
	out := make(map[string]bool)
	folders, err := filepath.Glob(filepath.Join(root, "*", "jobs", id))
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // deleted meanwhile
			}
			if err == nil && !d.IsDir() {
				name, _ := filepath.Rel(root, path)
				out[name] = true
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// compare returns the files of a job that no retained checkpoint refers to, and those that one refers to and that are not there.
func (w *world) compare(id string) (orphans map[string]bool, missing []string, err error) {
	orphans, err = w.storageOf(id) // before the list: what is written later is not looked at
	if err != nil {
		return nil, nil, err
	}
	kept, err := w.retained(id)
	if err != nil {
		return nil, nil, err
	}
	root := filepath.Join(w.c.Dir, "storage")
	for n, name := range kept {
		data, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, name)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		md, err := checkpointfile.Decode(name, data)
		if err != nil {
			return nil, nil, fmt.Errorf("checkpoint %d: %w", n, err)
		}
		delete(orphans, name)
		for _, f := range checkpoint.Files(md.GetTasks()) {
			delete(orphans, f.GetName())
			if _, err := os.Stat(filepath.Join(root, f.GetName())); err != nil {
				missing = append(missing, fmt.Sprintf("%s, of checkpoint %d", f.GetName(), n))
			}
		}
	}
	return orphans, missing, nil
}

// requireTidyWhileRunning waits until every file that no checkpoint refers to now is deleted or has come to be referred to.
func (w *world) requireTidyWhileRunning(l *life) {
	suspects, _, err := w.compare(l.id)
	harness.Eventually(w.t, time.Minute, "files of "+l.String()+" that nothing refers to, to be deleted", func() error {
		orphans, _, cerr := w.compare(l.id)
		if err = errors.Join(err, cerr); err != nil {
			suspects, _, err = w.compare(l.id)
			return errors.Join(errors.New("storage cannot be compared"), err)
		}
		for name := range suspects {
			if !orphans[name] {
				delete(suspects, name)
			}
		}
		if n := len(suspects); n > 0 {
			return fmt.Errorf("%d are left, such as %s", n, anyOf(suspects))
		}
		return nil
	})
}

// requireTidy waits until an ended job's files are exactly those of the checkpoints that it keeps.
func (w *world) requireTidy(id string) {
	harness.Eventually(w.t, time.Minute, "the files of ended job "+id+" to be what its checkpoints need", func() error {
		orphans, missing, err := w.compare(id)
		if err != nil {
			return err
		}
		if len(orphans)+len(missing) > 0 {
			return fmt.Errorf("%d files that nothing refers to, such as %q; missing are %v", len(orphans), anyOf(orphans), missing)
		}
		return nil
	})
}

func anyOf(names map[string]bool) string {
	for n := range names {
		return n
	}
	return ""
}
