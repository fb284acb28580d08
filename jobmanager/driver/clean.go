package driver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/statebackend/blob"
)

// cleaner deletes what a live job's files nobody needs any more, on a goroutine of its own. What fails is counted and tried again.
type cleaner struct {
	m      *Manager
	jobID  string
	prefix string
	box    *mailbox
	logger *slog.Logger
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{} // holds a token while there is work

	// retryAt and sweepAt belong to the driver's goroutine; zero means never.
	retryAt, sweepAt time.Time
	sweeps           int // that are still to come
	sweepPause       time.Duration

	mu   sync.Mutex
	work cleanWork
	// known holds the file lists of checkpoints, so that storage is asked only after a change of leaders.
	known map[uint64]*snapshotv1.CheckpointMetadata
}

// cleanWork is what there is to do; newer requests are merged into it.
type cleanWork struct {
	rec     *raftv1.JobRecord // whose garbage is to be deleted; nil for none
	discard []string
	sweep   *raftv1.JobRecord // whose storage is to be searched for orphans; nil for not
}

func newCleaner(m *Manager, rec *raftv1.JobRecord, box *mailbox, logger *slog.Logger) *cleaner {
	ctx, cancel := context.WithCancel(m.ctx)
	c := &cleaner{
		m: m, jobID: rec.GetId(), prefix: jobPrefix(m.cfg.ClusterID, rec.GetId()), box: box, logger: logger,
		cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1),
		known:      make(map[uint64]*snapshotv1.CheckpointMetadata),
		sweepPause: max(10*time.Second, ms(rec.GetGraph().GetCheckpoints().GetTimeoutMs())),
	}
	go c.run(ctx)
	return c
}

func (c *cleaner) stop() {
	c.cancel()
	<-c.done
}

func (c *cleaner) run(ctx context.Context) {
	defer close(c.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		c.mu.Lock()
		w := c.work
		c.work = cleanWork{}
		c.mu.Unlock()
		result := cleaned{}
		if left := c.m.deleteAll(ctx, w.discard); len(left) > 0 && ctx.Err() == nil {
			result.again = true
			c.discard(left)
		}
		// The search comes first: its record may be older than the one whose garbage follows, and needs all that it retains to be there.
		if w.sweep != nil {
			c.orphans(ctx, w.sweep)
		}
		if w.rec != nil {
			ids, ok := c.garbage(ctx, w.rec)
			result.checkpoints, result.again = ids, result.again || !ok
		}
		if result.again || len(result.checkpoints) > 0 {
			c.box.put(result)
		}
	}
}

func (c *cleaner) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// request asks for the deletion of a record's garbage.
func (c *cleaner) request(rec *raftv1.JobRecord) {
	if len(rec.GetGarbage()) == 0 {
		return
	}
	c.mu.Lock()
	c.work.rec = rec
	c.mu.Unlock()
	c.poke()
}

// discard asks for the deletion of files that nothing refers to.
func (c *cleaner) discard(names []string) {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, c.prefix) })
	if len(names) == 0 {
		return
	}
	c.mu.Lock()
	c.work.discard = append(c.work.discard, names...)
	c.mu.Unlock()
	c.poke()
}

// remember keeps the file list of a checkpoint.
func (c *cleaner) remember(id uint64, md *snapshotv1.CheckpointMetadata) {
	slim := &snapshotv1.CheckpointMetadata{Checkpoint: id}
	for _, h := range md.GetTasks() {
		slim.Tasks = append(slim.Tasks, &snapshotv1.TaskHandle{Files: h.GetFiles(), Spilled: h.GetSpilled()})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[id] = slim
}

// update forgets the lists of checkpoints that the log does not know any more. One that is not in the log yet is newer than all.
func (c *cleaner) update(rec *raftv1.JobRecord) {
	keep := make(map[uint64]bool)
	var newest uint64
	for _, cp := range slices.Concat(rec.GetCheckpoints(), rec.GetGarbage()) {
		keep[cp.GetId()] = true
		newest = max(newest, cp.GetId())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.known {
		if id < newest && !keep[id] {
			delete(c.known, id)
		}
	}
}

// attemptRuns plans two searches for what former attempts or leaders left, if there were any: their TaskManagers may still be uploading
// during the first.
func (c *cleaner) attemptRuns(rec *raftv1.JobRecord, former bool) {
	c.request(rec)
	if former {
		c.sweeps, c.sweepAt = 2, time.Now().Add(10*time.Second)
	}
}

func (c *cleaner) dueAt() time.Time {
	if c.retryAt.IsZero() || !c.sweepAt.IsZero() && c.sweepAt.Before(c.retryAt) {
		return c.sweepAt
	}
	return c.retryAt
}

func (c *cleaner) tick(now time.Time, rec *raftv1.JobRecord) {
	if !c.retryAt.IsZero() && !now.Before(c.retryAt) {
		c.retryAt = time.Time{}
		c.request(rec)
		c.poke()
	}
	if c.sweepAt.IsZero() || now.Before(c.sweepAt) {
		return
	}
	c.sweepAt = time.Time{}
	if c.sweeps--; c.sweeps > 0 {
		c.sweepAt = now.Add(c.sweepPause)
	}
	c.mu.Lock()
	c.work.sweep = rec
	c.mu.Unlock()
	c.poke()
}

// filesOf returns the file list of a checkpoint; nil without an error when its metadata is gone.
func (c *cleaner) filesOf(ctx context.Context, cp *raftv1.CompletedCheckpoint) (*snapshotv1.CheckpointMetadata, error) {
	c.mu.Lock()
	md := c.known[cp.GetId()]
	c.mu.Unlock()
	if md != nil {
		return md, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	md, err := ReadCheckpoint(ctx, c.m.cfg.Bucket, c.m.cfg.OpenBucket, cp)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	c.remember(cp.GetId(), md)
	return md, nil
}

// retained returns the file lists of the checkpoints that the record retains.
func (c *cleaner) retained(ctx context.Context, rec *raftv1.JobRecord) ([]*snapshotv1.CheckpointMetadata, bool) {
	var out []*snapshotv1.CheckpointMetadata
	for _, cp := range rec.GetCheckpoints() {
		md, err := c.filesOf(ctx, cp)
		if err != nil || md == nil {
			c.logger.Warn("nothing is deleted, since a retained checkpoint cannot be read", "checkpoint", cp.GetId(), "error", err)
			return nil, false
		}
		out = append(out, md)
	}
	return out, true
}

// garbage deletes what dropped checkpoints alone needed, and then their metadata. It returns those that are gone.
func (c *cleaner) garbage(ctx context.Context, rec *raftv1.JobRecord) ([]uint64, bool) {
	retained, ok := c.retained(ctx, rec)
	if !ok {
		return nil, false
	}
	var gone []uint64
	all := true
	for _, g := range rec.GetGarbage() {
		md, err := c.filesOf(ctx, g)
		if errors.Is(err, checkpointfile.ErrDamaged) {
			// Nobody can tell its files any more; the search for orphans finds them.
			c.logger.Warn("dropped checkpoint has damaged metadata", "checkpoint", g.GetId(), "error", err)
			md, err = &snapshotv1.CheckpointMetadata{}, nil
		}
		if err != nil {
			c.logger.Warn("dropped checkpoint cannot be read", "checkpoint", g.GetId(), "error", err)
			c.m.cfg.Metrics.deleteErrors.Inc()
			all = false
			continue
		}
		if md != nil {
			names := checkpoint.Unreferenced(c.prefix, []*snapshotv1.CheckpointMetadata{md}, retained)
			if len(c.m.deleteAll(ctx, names)) > 0 {
				all = false
				continue
			}
			faultpoint.Hit(faultpoint.FilesDeleted)
			if len(c.m.deleteAll(ctx, []string{g.GetMetadata().GetName()})) > 0 {
				all = false
				continue
			}
		}
		gone = append(gone, g.GetId())
	}
	return gone, all
}

// orphans deletes files that no checkpoint in the record refers to and that none can come to refer to: those of former attempts, and
// those of the current one from before its newest checkpoint.
func (c *cleaner) orphans(ctx context.Context, rec *raftv1.JobRecord) {
	retained, ok := c.retained(ctx, rec)
	if !ok || len(rec.GetCheckpoints()) == 0 {
		return
	}
	needed := make(map[string]bool)
	for _, md := range retained {
		for _, f := range checkpoint.Files(md.GetTasks()) {
			needed[f.GetName()] = true
		}
	}
	known := make(map[uint64]bool)
	for _, cp := range slices.Concat(rec.GetCheckpoints(), rec.GetGarbage()) {
		known[cp.GetId()] = true
	}
	for _, g := range rec.GetGarbage() {
		if md, err := c.filesOf(ctx, g); err == nil {
			for _, f := range checkpoint.Files(md.GetTasks()) {
				needed[f.GetName()] = true // deleted with their checkpoint
			}
		}
	}
	newest := newestID(rec)
	names := c.list(ctx, "state/", func(name string) bool {
		attempt, id, ok := parseStateName(strings.TrimPrefix(name, c.prefix+"state/"))
		return ok && !needed[name] && (attempt < rec.GetAttempt() || id < newest)
	})
	// The metadata of a checkpoint that a former leader did not get to propose.
	names = append(names, c.list(ctx, "checkpoints/", func(name string) bool {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, c.prefix+"checkpoints/"), "/")
		id, err := strconv.ParseUint(number, 10, 64)
		return err == nil && id < newest && !known[id]
	})...)
	if len(names) > 0 {
		c.logger.Info("orphan files are deleted", "files", len(names))
		c.m.deleteAll(ctx, names)
	}
}

// newestID returns the id of the newest completed checkpoint of a record that has one. What it does not need of the files that were written
// under lower ids nobody can come to need: the tasks go on from what their snapshots in it hold, and the log takes no older checkpoint any
// more. An older one that is retained, such as that which the attempt was restored from, has its own list of files.
func newestID(rec *raftv1.JobRecord) uint64 {
	last, _ := fsm.LastCheckpoint(rec)
	return last.GetId()
}

// list returns the job's files in a folder that are not wanted.
func (c *cleaner) list(ctx context.Context, folder string, unwanted func(name string) bool) []string {
	var names []string
	for a, err := range c.m.cfg.Bucket.List(ctx, c.prefix+folder) {
		if err != nil {
			c.logger.Warn("search for orphan files stopped", "error", err)
			break
		}
		if unwanted(a.Name) {
			names = append(names, a.Name)
		}
	}
	return names
}

// parseStateName takes <attempt>/<vertex>-<subtask>/<uid>/<checkpoint>-<seq> apart.
func parseStateName(name string) (attempt, id uint64, ok bool) {
	first, _, found := strings.Cut(name, "/")
	attempt, err := strconv.ParseUint(first, 10, 64)
	last := name[strings.LastIndexByte(name, '/')+1:]
	number, _, dashed := strings.Cut(last, "-")
	id, err2 := strconv.ParseUint(number, 10, 64)
	return attempt, id, found && dashed && err == nil && err2 == nil
}

func (j *job) onCleaned(ev cleaned) {
	if ev.again {
		j.clean.retryAt = time.Now().Add(cleanRetry)
	}
	if len(ev.checkpoints) > 0 {
		faultpoint.Hit(faultpoint.GarbageDeleted)
		j.propose(&raftv1.Command{Command: &raftv1.Command_DropGarbage{DropGarbage: &raftv1.DropGarbage{JobId: j.id, Checkpoints: ev.checkpoints}}})
		faultpoint.Hit(faultpoint.GarbageDropped)
	}
}

// deleteAll deletes files and returns those that could not be deleted; one that fails does not keep the others.
func (m *Manager) deleteAll(ctx context.Context, names []string) (left []string) {
	for _, n := range names {
		one, cancel := context.WithTimeout(ctx, storageTimeout)
		err := m.cfg.Bucket.Delete(one, n)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				m.cfg.Metrics.deleteErrors.Inc()
				m.cfg.Logger.Warn("file not deleted", "file", n, "error", err)
			}
			left = append(left, n)
			continue
		}
		m.cfg.Metrics.deleted.Inc()
	}
	return left
}
