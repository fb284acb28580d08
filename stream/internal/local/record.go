package local

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/atomicfile"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

// recordVersion is the version of the file CURRENT.
const recordVersion = 1

// recordHeader is the first line of the file CURRENT.
const recordHeader = "weir-record %d %08x\n"

var (
	// ErrFormat is returned for a state directory of another version.
	ErrFormat = errors.New("has a format that this program does not read")
	// ErrDamaged is returned for a record that is not what was written.
	ErrDamaged = errors.New("is damaged")
	// ErrNoRecord is returned for a state directory that has state and no record of it.
	ErrNoRecord = errors.New("the file CURRENT is missing, which says where the job stopped")
	// ErrOtherJob is returned for a state directory of another job.
	ErrOtherJob = errors.New("state directory belongs to another job")
)

// stateDir is the state directory and what is in it.
type stateDir struct {
	path  string
	lock  *os.File
	store *store
	// record is the content of CURRENT; changes go through update.
	record *raftv1.Snapshot
	// uncertain is set once a write of CURRENT had an unknown outcome; nothing is written afterwards.
	uncertain error
}

// openDir opens or creates a state directory, locks it, and clears what a former process left unfinished.
func openDir(path string) (*stateDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := atomicfile.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	l, err := lock(path)
	if err != nil {
		return nil, err
	}
	d := &stateDir{path: path, lock: l, store: newStore(filepath.Join(path, "storage"))}
	if err := d.load(); err != nil {
		_ = l.Close()
		return nil, err
	}
	return d, nil
}

func (d *stateDir) close() { _ = d.lock.Close() }

func (d *stateDir) file() string { return filepath.Join(d.path, "CURRENT") }

// work is the scratch directory.
func (d *stateDir) work() string { return filepath.Join(d.path, "work") }

func (d *stateDir) load() error {
	if err := os.RemoveAll(d.work()); err != nil {
		return fmt.Errorf("clear the scratch directory: %w", err)
	}
	data, err := os.ReadFile(d.file())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if used, err := d.store.used(); err != nil {
			return fmt.Errorf("read the state directory: %w", err)
		} else if used {
			return fmt.Errorf("%s: %w, while storage/ has files of its checkpoints: "+
				"put CURRENT back, or delete the directory to start afresh, which writes all output again", d.path, ErrNoRecord)
		}
		d.record = &raftv1.Snapshot{
			FormatVersion: recordVersion, ClusterId: randomID(),
			Jobs: []*raftv1.JobRecord{{Id: randomID(), NextCheckpoint: 1}},
		}
		return d.write(d.record)
	case err != nil:
		return fmt.Errorf("read the state directory: %w", err)
	}
	if d.record, err = decodeRecord(data); err != nil {
		return fmt.Errorf("%s %w; delete the directory to start afresh, which writes all output again", d.file(), err)
	}
	return nil
}

// encodeRecord returns the content of CURRENT: a line with the version and the CRC32C of what follows, and the record as protobuf JSON.
func encodeRecord(r *raftv1.Snapshot) ([]byte, error) {
	data, err := protojson.MarshalOptions{Multiline: true}.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the record: %w", err)
	}
	return append(fmt.Appendf(nil, recordHeader, recordVersion, crc32.Checksum(data, castagnoli())), data...), nil
}

func decodeRecord(data []byte) (*raftv1.Snapshot, error) {
	line, body, _ := bytes.Cut(data, []byte("\n"))
	var v, sum uint32
	if _, err := fmt.Sscanf(string(line)+"\n", recordHeader, &v, &sum); err != nil {
		return nil, fmt.Errorf("%w: its first line is not that of a record", ErrDamaged)
	}
	if v != recordVersion {
		return nil, fmt.Errorf("%w: version %d, this program writes %d", ErrFormat, v, recordVersion)
	}
	if string(line)+"\n" != fmt.Sprintf(recordHeader, v, crc32.Checksum(body, castagnoli())) {
		return nil, fmt.Errorf("%w: its checksum does not fit", ErrDamaged)
	}
	r := &raftv1.Snapshot{}
	if err := protojson.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if r.GetFormatVersion() != recordVersion || len(r.GetJobs()) != 1 {
		return nil, fmt.Errorf("%w: version %d with %d jobs", ErrFormat, r.GetFormatVersion(), len(r.GetJobs()))
	}
	return r, nil
}

func randomID() string {
	id := make([]byte, 8)
	_, _ = rand.Read(id)
	return hex.EncodeToString(id)
}

func (d *stateDir) cluster() string { return d.record.GetClusterId() }

func (d *stateDir) job() *raftv1.JobRecord { return d.record.GetJobs()[0] }

// last returns the newest completed checkpoint, nil before the first.
func (d *stateDir) last() *raftv1.CompletedCheckpoint {
	cps := d.job().GetCheckpoints()
	if len(cps) == 0 {
		return nil
	}
	return cps[len(cps)-1]
}

// replacements take the place of lost transactions of the last checkpoint.
func (d *stateDir) replacements() []*workerv1.Replacement {
	if r := d.job().GetReplaced(); d.last() != nil && r.GetCheckpoint() == d.last().GetId() {
		return r.GetReplacements()
	}
	return nil
}

// prepared reports whether an attempt of the job was prepared since the job began, so that its sinks may have written something.
func (d *stateDir) prepared() bool { return d.job().GetPrepared() || d.last() != nil }

// ErrUncertain is wrapped by the error about a record of which nobody knows whether it would survive a crash.
var ErrUncertain = errors.New("it is not certain what the state directory holds")

// update changes the record durably. When it returns an error nothing has changed, unless the error is ErrUncertain: then the next
// start finds out, and this process must not act on either.
func (d *stateDir) update(change func(*raftv1.JobRecord)) error {
	if d.uncertain != nil {
		return d.uncertain
	}
	next := proto.CloneOf(d.record)
	change(next.GetJobs()[0])
	if err := d.write(next); err != nil {
		return err
	}
	d.record = next
	return nil
}

func (d *stateDir) write(next *raftv1.Snapshot) error {
	data, err := encodeRecord(next)
	if err != nil {
		return err
	}
	before, readErr := os.ReadFile(d.file())
	err = atomicfile.Write(d.file(), data, 0o600)
	if err == nil {
		return nil
	}
	after, afterErr := os.ReadFile(d.file())
	if sameError(readErr, afterErr) && bytes.Equal(before, after) {
		return err
	}
	d.uncertain = fmt.Errorf("%w: %w", ErrUncertain, err)
	return d.uncertain
}

// sameError reports whether a file could be read both times, or was absent both times.
func sameError(a, b error) bool {
	return a == nil && b == nil || errors.Is(a, fs.ErrNotExist) && errors.Is(b, fs.ErrNotExist)
}

// claim makes the directory the job's.
func (d *stateDir) claim(g *graph.Graph) error {
	switch name := d.job().GetName(); name {
	case g.Name:
		return nil
	case "":
		return d.update(func(j *raftv1.JobRecord) { j.Name = g.Name })
	default:
		return fmt.Errorf("%s: %w: it is %q's, this job is %q; choose another directory", d.path, ErrOtherJob, name, g.Name)
	}
}

// beginAttempt records a new attempt with what it may leave open, before it can.
func (d *stateDir) beginAttempt(g *graph.Graph, settleOnly bool) error {
	return d.update(func(j *raftv1.JobRecord) {
		j.Attempt++
		j.Started = false
		j.SettlingAttempt = settleOnly
		if !settleOnly {
			j.State = jobv1.JobState_JOB_STATE_DEPLOYING
		}
		if !settleOnly || durable(g) {
			j.Unfenced = append(j.Unfenced, &workerv1.FencedAttempt{Attempt: j.Attempt, Sinks: extents(g)})
		}
	})
}

// durable reports whether even an attempt that settles may write: what was lost, again.
func durable(g *graph.Graph) bool {
	return slices.ContainsFunc(g.Vertices, func(v graph.Vertex) bool {
		return slices.ContainsFunc(v.Operators, func(o graph.Operator) bool { return o.DurableOutput })
	})
}

// extents returns the bounds of the transactional ids of a job's sinks.
func extents(g *graph.Graph) (sinks []*workerv1.SinkExtent) {
	for _, v := range g.Vertices {
		for _, op := range v.Operators {
			if op.TransactionSlots > 0 {
				sinks = append(sinks, &workerv1.SinkExtent{
					Uid: op.UID, Parallelism: uint32(v.Parallelism), Slots: uint32(op.TransactionSlots),
				})
			}
		}
	}
	return sinks
}

// settle marks every checkpoint up to n as committed by all sinks.
func settle(j *raftv1.JobRecord, n uint64) {
	for _, cp := range j.GetCheckpoints() {
		cp.Settled = cp.GetSettled() || cp.GetId() <= n
	}
	if j.GetReplaced().GetCheckpoint() <= n {
		j.Replaced = nil
	}
}

// fenced forgets attempts before the given one.
func fenced(j *raftv1.JobRecord, before uint64) {
	j.Unfenced = slices.DeleteFunc(j.Unfenced, func(f *workerv1.FencedAttempt) bool { return f.GetAttempt() < before })
}

// complete is a checkpoint's commit point.
func (d *stateDir) complete(cp *raftv1.CompletedCheckpoint, target jobv1.JobState, retained int) error {
	return d.update(func(j *raftv1.JobRecord) {
		cp = proto.CloneOf(cp)
		cp.Settled = cp.GetCommittables() == 0
		j.Checkpoints = append(j.Checkpoints, cp)
		if drop := len(j.Checkpoints) - max(retained, 1); drop > 0 {
			j.Checkpoints = slices.Delete(j.Checkpoints, 0, drop)
		}
		j.CompletedCheckpoints++
		if target != jobv1.JobState_JOB_STATE_UNSPECIFIED {
			j.State, j.Target = jobv1.JobState_JOB_STATE_SETTLING, target
		}
	})
}

// clean deletes every file that no completed checkpoint needs. Nothing may be running.
func (d *stateDir) clean() error {
	keep := make(map[string]bool)
	for _, cp := range d.job().GetCheckpoints() {
		meta, err := d.metadata(cp)
		if err != nil {
			return err
		}
		keep[cp.GetMetadata().GetName()] = true
		for _, f := range checkpoint.Files(meta.GetTasks()) {
			keep[f.GetName()] = true
		}
	}
	return d.store.sweep(keep)
}

// drop deletes the files that only the given former checkpoints needed.
func (d *stateDir) drop(former []*raftv1.CompletedCheckpoint) error {
	var dropped, retained []*snapshotv1.CheckpointMetadata
	var names []string
	for _, cp := range former {
		kept := slices.ContainsFunc(d.job().GetCheckpoints(), func(k *raftv1.CompletedCheckpoint) bool { return k.GetId() == cp.GetId() })
		if kept {
			continue
		}
		meta, err := d.metadata(cp)
		if err != nil {
			return err
		}
		dropped = append(dropped, meta)
		names = append(names, cp.GetMetadata().GetName())
	}
	if len(dropped) == 0 {
		return nil
	}
	for _, cp := range d.job().GetCheckpoints() {
		meta, err := d.metadata(cp)
		if err != nil {
			return err
		}
		retained = append(retained, meta)
	}
	prefix := d.cluster() + "/jobs/" + d.job().GetId() + "/"
	return d.store.remove(append(checkpoint.Unreferenced(prefix, dropped, retained), names...))
}

func (d *stateDir) metadata(cp *raftv1.CompletedCheckpoint) (*snapshotv1.CheckpointMetadata, error) {
	data, err := os.ReadFile(d.store.path(cp.GetMetadata().GetName()))
	if err != nil {
		return nil, fmt.Errorf("read checkpoint %d: %w", cp.GetId(), err)
	}
	if err := checkpointfile.Check(cp.GetMetadata(), data); err != nil {
		return nil, err
	}
	return checkpointfile.Decode(cp.GetMetadata().GetName(), data)
}
