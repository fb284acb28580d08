package driver

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/statebackend/blob"
)

// exportCopies is how many files are copied at a time.
const exportCopies = 4

// exportResult is the outcome for one request.
type exportResult struct {
	requestID string
	path      string
	err       error
}

// requestSavepoint takes a savepoint, or answers with the one that this request id stands for.
func (j *job) requestSavepoint(ev savepointRequest) {
	if sp := savepointByRequest(j.rec, ev.requestID); sp != nil {
		ev.reply <- savepointReply{path: sp.GetPath(), checkpoint: sp.GetCheckpoint(), err: recordedError(sp)}
		return
	}
	if j.rec.GetState() == jobv1.JobState_JOB_STATE_SETTLING {
		ev.reply <- savepointReply{err: savepointError("the job is ending")}
		return
	}
	if call := j.savepoints[ev.requestID]; call != nil {
		call.replies = append(call.replies, ev.reply)
		return
	}
	if j.phase != phaseRunning && !j.takingUp {
		ev.reply <- savepointReply{err: savepointError("the job is not running: it waits for " + j.waitingFor())}
		return
	}
	j.savepoints[ev.requestID] = &savepointCall{dir: ev.dir, replies: []chan<- savepointReply{ev.reply}}
	if j.phase == phaseRunning {
		j.coordinate(checkpoint.RequestSavepoint{RequestID: ev.requestID})
	}
}

// notTakenUp answers the savepoints that wait for the job to run again after a leader change.
func (j *job) notTakenUp(reason string) {
	if !j.takingUp {
		return
	}
	j.takingUp = false
	for id := range j.savepoints {
		j.answerSavepoint(id, savepointReply{err: savepointError("the job does not come up: " + reason)})
	}
}

func recordedError(sp *raftv1.Savepoint) error {
	if sp.GetError() == "" {
		return nil
	}
	return savepointError(sp.GetError())
}

func (j *job) answerSavepoint(requestID string, r savepointReply) {
	if call := j.savepoints[requestID]; call != nil {
		for _, c := range call.replies {
			c <- r
		}
		delete(j.savepoints, requestID)
	}
}

// export copies a pinned checkpoint beside the driver, once for each request.
func (j *job) export(attempt uint64, e checkpoint.Export) {
	faultpoint.Hit(faultpoint.ExportDue)
	dirs := make(map[string]string)
	for _, id := range e.RequestIDs {
		if call := j.savepoints[id]; call != nil {
			dirs[id] = call.dir
		}
	}
	if e.StopID != "" {
		dirs[e.StopID] = j.rec.GetStopSavepointDir()
	}
	ctx, box, m, rec := j.ctx, j.box, j.m, j.rec
	j.m.goDo(func() {
		ctx, cancel := context.WithTimeout(ctx, exportTimeout)
		defer cancel()
		out := exported{attempt: attempt, effect: e}
		for id, dir := range dirs {
			path, err := m.exportTo(ctx, rec, e.Checkpoint, dir)
			out.results = append(out.results, exportResult{requestID: id, path: path, err: err})
		}
		box.put(out)
	})
}

func (j *job) onExported(ev exported) {
	j.unpin(ev.effect.Checkpoint)
	for _, r := range ev.results {
		if j.phase == phaseDone {
			return
		}
		if r.requestID == ev.effect.StopID {
			j.stopExported(ev, r)
			continue
		}
		sp := &raftv1.Savepoint{RequestId: r.requestID, Path: r.path, Checkpoint: ev.effect.Checkpoint, AtMs: nowMs()}
		if r.err != nil {
			// A failure is recorded too, so that the request repeated to a later leader has the same outcome.
			sp = &raftv1.Savepoint{RequestId: r.requestID, Error: r.err.Error(), AtMs: nowMs()}
		}
		if _, ok := j.propose(recordSavepoint(j.id, sp)); !ok {
			return
		}
		if recorded := savepointByRequest(j.rec, r.requestID); recorded != nil {
			sp = recorded // the first one counts
		}
		j.logger.Info("savepoint decided", "path", sp.GetPath(), "checkpoint", sp.GetCheckpoint(), "error", sp.GetError())
		j.answerSavepoint(r.requestID, savepointReply{path: sp.GetPath(), checkpoint: sp.GetCheckpoint(), err: recordedError(sp)})
	}
}

func recordSavepoint(jobID string, sp *raftv1.Savepoint) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_RecordSavepoint{RecordSavepoint: &raftv1.RecordSavepoint{JobId: jobID, Savepoint: sp}}}
}

// stopExported ends the job with the savepoint of its stop, or lets it go on without.
func (j *job) stopExported(ev exported, r exportResult) {
	if j.rec.GetStopRequestId() != r.requestID || j.rec.GetState() == jobv1.JobState_JOB_STATE_SETTLING {
		return // canceled meanwhile
	}
	current := j.att != nil && j.att.number == ev.attempt && j.phase == phaseRunning
	if r.err != nil {
		j.logger.Warn("savepoint of the stop failed, the job goes on", "error", r.err)
		j.clearStop(r.err.Error())
		if current {
			j.coordinate(checkpoint.StopCancelled{})
		}
		return
	}
	if !current {
		return // the attempt failed meanwhile; the next one takes the stop up again
	}
	sp := &raftv1.Savepoint{RequestId: r.requestID, Path: r.path, Checkpoint: ev.effect.Checkpoint, AtMs: nowMs()}
	if _, ok := j.propose(recordSavepoint(j.id, sp)); !ok {
		return
	}
	faultpoint.Hit(faultpoint.SavepointRecorded)
	res, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_EndJob{EndJob: &raftv1.EndJob{
		JobId: j.id, RequestId: r.requestID, Target: jobv1.JobState_JOB_STATE_STOPPED,
	}}})
	if !ok || res.Err != nil {
		return
	}
	j.logger.Info("job stops with a savepoint", "path", r.path, "checkpoint", ev.effect.Checkpoint)
	j.answerStops(nil)
	j.endCoordinator("the job is stopped")
	if j.phase != phaseDone {
		j.finishWorkers()
	}
}

func (j *job) unpin(id uint64) {
	if _, ok := j.propose(unpinCommand(j.id, id)); ok {
		j.clean.request(j.rec)
	}
}

// unpinAll lets go of the checkpoints that a former leader was exporting: nobody goes on with that. It returns false when the
// leadership has ended.
func (j *job) unpinAll() bool {
	for _, id := range pinned(j.rec) {
		if j.unpin(id); j.phase == phaseDone {
			return false
		}
	}
	return true
}

func pinned(rec *raftv1.JobRecord) []uint64 {
	var ids []uint64
	for _, cp := range rec.GetCheckpoints() {
		if cp.GetPinned() {
			ids = append(ids, cp.GetId())
		}
	}
	return ids
}

func unpinCommand(jobID string, id uint64) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_PinCheckpoint{PinCheckpoint: &raftv1.PinCheckpoint{JobId: jobID, Checkpoint: id}}}
}

// exportTo copies a checkpoint into a directory of its own below dir, so that it depends on nothing else, and returns its URL. A
// repeated export of the same checkpoint finds its files there.
func (m *Manager) exportTo(ctx context.Context, rec *raftv1.JobRecord, id uint64, dir string) (string, error) {
	if dir == "" {
		dir = blob.Join(m.cfg.Bucket.URL(), m.cfg.ClusterID+"/savepoints")
	}
	dst, err := m.cfg.OpenBucket(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("savepoint directory %s: %w", dir, err)
	}
	defer dst.Close()
	i := slices.IndexFunc(rec.GetCheckpoints(), func(cp *raftv1.CompletedCheckpoint) bool { return cp.GetId() == id })
	if i < 0 {
		return "", fmt.Errorf("checkpoint %d is not kept any more", id)
	}
	md, err := ReadCheckpoint(ctx, m.cfg.Bucket, m.cfg.OpenBucket, rec.GetCheckpoints()[i])
	if err != nil {
		return "", err
	}
	x := exporter{m: m, dst: dst, folder: "savepoint-" + rec.GetId() + "-" + strconv.FormatUint(id, 10)}
	x.root = blob.Join(dst.URL(), x.folder)
	if err := x.copyFiles(ctx, md); err != nil {
		return "", err
	}
	if err := x.rewrite(ctx, md); err != nil {
		return "", err
	}
	md.Savepoint, md.FormatVersion = true, checkpointfile.RelativeNames
	if _, err := putMetadata(ctx, dst, x.folder+"/metadata", md); err != nil {
		return "", err
	}
	return x.root, nil
}

// exporter makes one savepoint.
type exporter struct {
	m      *Manager
	dst    blob.Bucket
	folder string            // in dst
	root   string            // URL of the folder
	names  map[string]string // name in the checkpoint → name in dst
}

func (x *exporter) copyFiles(ctx context.Context, md *snapshotv1.CheckpointMetadata) error {
	x.names = make(map[string]string)
	spilled := make(map[string]bool)
	for _, h := range md.GetTasks() {
		if h.GetSpilled() != nil {
			spilled[h.GetSpilled().GetName()] = true // rewritten instead
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(exportCopies)
	for i, f := range checkpoint.Files(md.GetTasks()) {
		if spilled[f.GetName()] || f.GetRecords() {
			continue
		}
		to := fmt.Sprintf("%s/files/%06d", x.folder, i)
		x.names[f.GetName()] = to
		g.Go(func() error { return x.copyFile(ctx, f, to) })
	}
	return g.Wait()
}

func (x *exporter) copyFile(ctx context.Context, f *snapshotv1.FileReference, to string) error {
	src, name := x.m.cfg.Bucket, f.GetName()
	if strings.Contains(name, "://") {
		other, base, err := openParent(ctx, x.m.cfg.OpenBucket, name)
		if err != nil {
			return err
		}
		defer other.Close()
		src, name = other, base
	}
	r, err := src.Open(ctx, name)
	if err != nil {
		return fmt.Errorf("read %s: %w", f.GetName(), err)
	}
	defer r.Close()
	err = x.dst.Put(ctx, to, &exactly{r: r, left: int64(f.GetSize()), want: f.GetCrc32C(), name: f.GetName()})
	if errors.Is(err, blob.ErrExists) {
		if a, serr := x.dst.Stat(ctx, to); serr == nil && uint64(a.Size) == f.GetSize() {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	return nil
}

// exactly reads a file whose size and checksum are known, so that a truncated or damaged one is not copied as if it were good.
type exactly struct {
	r    io.Reader
	left int64
	crc  uint32
	want uint32 // CRC32C of the whole file
	name string
}

func (e *exactly) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.left -= int64(n)
	e.crc = crc32.Update(e.crc, castagnoli(), p[:n])
	switch end := errors.Is(err, io.EOF); {
	case e.left < 0, end && e.left > 0:
		return n, fmt.Errorf("%s is damaged: it has not the size that its checkpoint names", e.name)
	case end && e.crc != e.want:
		return n, fmt.Errorf("%s is damaged: it has not the checksum that its checkpoint names", e.name)
	}
	return n, err
}

// rewrite makes the handles name the copies, and drops the committables, which are all committed.
func (x *exporter) rewrite(ctx context.Context, md *snapshotv1.CheckpointMetadata) error {
	for i, h := range md.GetTasks() {
		data := h.GetSnapshot()
		if s := h.GetSpilled(); s != nil {
			var err error
			if data, err = readSpilled(ctx, x.m.cfg.Bucket, x.m.cfg.OpenBucket, s); err != nil {
				return err
			}
		}
		snap := &snapshotv1.TaskSnapshot{}
		if err := proto.Unmarshal(data, snap); err != nil {
			return fmt.Errorf("snapshot of %s[%d]: %w", h.GetVertex(), h.GetSubtask(), err)
		}
		for _, op := range snap.GetOperators() {
			op.Committables = nil
			for _, s := range op.GetKeyed().GetSegments() {
				if s.GetName() == "" {
					continue
				}
				to, ok := x.names[s.GetName()]
				if !ok {
					return fmt.Errorf("snapshot of %s[%d] needs %s, which its handle does not name", h.GetVertex(), h.GetSubtask(), s.GetName())
				}
				s.Name = x.below(to)
			}
		}
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(snap)
		if err != nil {
			return err
		}
		h.Files = slices.DeleteFunc(h.Files, (*snapshotv1.FileReference).GetRecords)
		for _, f := range h.GetFiles() {
			if to, ok := x.names[f.GetName()]; ok {
				f.Name = x.below(to)
			}
		}
		h.Committables = 0
		if h.GetSpilled() == nil {
			h.Snapshot = data
			continue
		}
		to := fmt.Sprintf("%s/tasks/%06d", x.folder, i)
		if err := putBytes(ctx, x.dst, to, data); err != nil {
			return err
		}
		seg := checkpointfile.Segment(x.below(to), data)
		seg.Checkpoint, seg.FormatVersion = h.GetSpilled().GetCheckpoint(), h.GetSpilled().GetFormatVersion()
		h.Spilled = seg
	}
	return nil
}

// below is the name of a file in dst as the savepoint's metadata has it: relative to the savepoint's folder, so that it can be moved.
func (x *exporter) below(name string) string { return strings.TrimPrefix(name, x.folder+"/") }
