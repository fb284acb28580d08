package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/statebackend/blob"
)

const (
	// maxOrphans bounds one answer; the next sweep finds the rest.
	maxOrphans = 5000
	// sweepBatch is how many files are deleted before the leader asks again whether it still is.
	sweepBatch = 100
)

// Orphan is a file of the cluster on checkpoint storage that no job in the log needs and none can come to need.
type Orphan struct {
	Name   string
	Size   int64 // in bytes
	Age    time.Duration
	Reason string
	Err    error // why it is still there; nil in a dry run
}

// Swept is the result of a sweep.
type Swept struct {
	Orphans []Orphan // in the order of their names
	More    bool     // there are more than one sweep takes
	// LeftAlone tells in sentences whose files were not looked at.
	LeftAlone []string
}

// Sweep looks for orphans of at least an age through everything of this cluster on checkpoint storage, and deletes them unless it is a
// dry run. Everything else that is cleaned up is cleaned up by itself; this finds what was left when that went wrong for good, such as
// the files of jobs that the log does not know any more. What is no file of a job, by its name, is never touched: savepoints, binaries,
// other clusters. It fails when the leadership ends.
func (m *Manager) Sweep(ctx context.Context, age time.Duration, dry bool) (Swept, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	// The files come before the log: a job that wrote one of them is known then.
	var files []blob.Attributes
	now := time.Now()
	for a, err := range m.cfg.Bucket.List(ctx, m.cfg.ClusterID+"/jobs/") {
		if err != nil {
			return Swept{}, fmt.Errorf("list checkpoint storage: %w", err)
		}
		if now.Sub(a.ModTime) >= age {
			files = append(files, a)
		}
	}
	if err := m.cfg.Log.Barrier(ctx); err != nil {
		return Swept{}, err
	}
	refs := m.references(ctx)
	if err := ctx.Err(); err != nil {
		return Swept{}, err
	}
	out := Swept{LeftAlone: refs.leftAlone()}
	slices.SortFunc(files, func(a, b blob.Attributes) int { return cmp.Compare(a.Name, b.Name) })
	for _, f := range files {
		reason := refs.orphan(f.Name)
		if reason == "" {
			continue
		}
		if out.More = len(out.Orphans) == maxOrphans; out.More {
			break
		}
		out.Orphans = append(out.Orphans, Orphan{Name: f.Name, Size: f.Size, Age: now.Sub(f.ModTime), Reason: reason})
	}
	if dry {
		return out, nil
	}
	for batch := range slices.Chunk(out.Orphans, sweepBatch) {
		if err := m.cfg.Log.Barrier(ctx); err != nil {
			return Swept{}, err
		}
		for i := range batch {
			one, cancel := context.WithTimeout(ctx, storageTimeout)
			batch[i].Err = m.cfg.Bucket.Delete(one, batch[i].Name)
			cancel()
			if batch[i].Err != nil {
				m.cfg.Metrics.deleteErrors.Inc()
			} else {
				m.cfg.Metrics.deleted.Inc()
			}
		}
	}
	if len(out.Orphans) > 0 {
		m.cfg.Logger.Info("checkpoint storage was swept", "files", len(out.Orphans), "older_than", age)
	}
	return out, nil
}

// references are what the jobs in the log need of checkpoint storage.
type references struct {
	cluster string
	jobs    map[string]*raftv1.JobRecord
	needed  map[string]bool   // by name
	blind   map[string]string // id of a job whose files are left alone → why
}

// references reads what each checkpoint needs that the log knows, those that are being deleted and those that jobs began with included.
func (m *Manager) references(ctx context.Context) references {
	r := references{
		cluster: m.cfg.ClusterID, jobs: make(map[string]*raftv1.JobRecord), needed: make(map[string]bool), blind: make(map[string]string),
	}
	for _, rec := range m.cfg.Log.View().Jobs() {
		r.jobs[rec.GetId()] = rec
		names := make(map[string]bool) // and whether it must be there
		for _, g := range rec.GetGarbage() {
			names[g.GetMetadata().GetName()] = false
		}
		for _, cp := range rec.GetCheckpoints() {
			names[cp.GetMetadata().GetName()] = true
		}
		for _, from := range []string{rec.GetRestore().GetMetadata().GetName(), rec.GetFrom().GetMetadata().GetName()} {
			if from != "" && (len(rec.GetCheckpoints()) == 0 || from == rec.GetRestore().GetMetadata().GetName()) {
				names[from] = true
			}
		}
		for name, kept := range names {
			r.needed[name] = true
			one, cancel := context.WithTimeout(ctx, storageTimeout)
			md, _, err := ReadMetadata(one, m.cfg.Bucket, m.cfg.OpenBucket, name)
			cancel()
			gone := errors.Is(err, blob.ErrNotExist) || errors.Is(err, checkpointfile.ErrDamaged)
			if err != nil && !kept && gone {
				continue // its files go with it, or nobody can tell them any more
			}
			if err != nil {
				// It may need files of this job, and of the one that it was taken of.
				why := fmt.Sprintf("%s, which job %s (%s) may need, cannot be read: %s", name, rec.GetName(), rec.GetId(), err)
				r.blind[rec.GetId()] = why
				if of, _, ok := r.split(name); ok {
					r.blind[of] = why
				}
				continue
			}
			for _, f := range checkpoint.Files(md.GetTasks()) {
				r.needed[f.GetName()] = true
			}
		}
	}
	return r
}

// split takes the name of a job's file apart.
func (r references) split(name string) (job, rest string, ok bool) {
	below, ok := strings.CutPrefix(name, r.cluster+"/jobs/")
	if !ok {
		return "", "", false
	}
	return strings.Cut(below, "/")
}

func (r references) leftAlone() []string {
	var out []string
	for job, why := range r.blind {
		out = append(out, fmt.Sprintf("files of job %s: %s", job, why))
	}
	slices.Sort(out)
	return out
}

// orphan tells why nothing needs a file; empty when something may.
func (r references) orphan(name string) string {
	job, rest, ok := r.split(name)
	if !ok || r.needed[name] || r.blind[job] != "" || strings.Contains(name, "/savepoint-") {
		return ""
	}
	attempt, id := uint64(0), uint64(0)
	state, isState := strings.CutPrefix(rest, "state/")
	metadata, isMetadata := strings.CutPrefix(rest, "checkpoints/")
	switch {
	case isState:
		attempt, id, ok = parseStateName(state)
	case isMetadata:
		number, last := path.Split(metadata)
		n, err := strconv.ParseUint(strings.TrimSuffix(number, "/"), 10, 64)
		id, ok = n, err == nil && last == "metadata"
	default:
		ok = false
	}
	if !ok {
		return "" // nothing that Weir writes there
	}
	rec := r.jobs[job]
	switch {
	case rec == nil:
		return "its job is not known any more"
	case fsm.Terminal(rec.GetState()):
		return "its job has ended, and no checkpoint that is kept needs it"
	case len(rec.GetCheckpoints()) == 0:
		return "" // the first one may come to need it
	case id < newestID(rec):
		return "it is older than the newest checkpoint, and none that is kept needs it"
	case isState && attempt < rec.GetAttempt():
		return fmt.Sprintf("attempt %d has ended, and no checkpoint that is kept needs it", attempt)
	}
	return ""
}
