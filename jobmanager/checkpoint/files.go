package checkpoint

import (
	"slices"
	"strconv"
	"strings"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
)

// MetadataName returns the name of a checkpoint's metadata file below the storage root.
func MetadataName(clusterID, jobID string, checkpoint uint64) string {
	return clusterID + "/jobs/" + jobID + "/checkpoints/" + strconv.FormatUint(checkpoint, 10) + "/metadata"
}

// Files returns the files on checkpoint storage that the handles need, spilled snapshots included, each once, sorted by name.
func Files(handles []*snapshotv1.TaskHandle) []*snapshotv1.FileReference {
	var files []*snapshotv1.FileReference
	for _, h := range handles {
		files = append(files, h.GetFiles()...)
		if s := h.GetSpilled(); s != nil {
			files = append(files, &snapshotv1.FileReference{Name: s.GetName(), Size: s.GetSize(), Checkpoint: s.GetCheckpoint(), Crc32C: s.GetCrc32C()})
		}
	}
	slices.SortFunc(files, func(a, b *snapshotv1.FileReference) int { return strings.Compare(a.GetName(), b.GetName()) })
	return slices.CompactFunc(files, func(a, b *snapshotv1.FileReference) bool { return a.GetName() == b.GetName() })
}

// Origins returns the checkpoints that wrote the files the handles need, and the checkpoint itself, in ascending order.
func Origins(checkpoint uint64, handles []*snapshotv1.TaskHandle) []uint64 {
	origins := []uint64{checkpoint}
	for _, f := range Files(handles) {
		origins = append(origins, f.GetCheckpoint())
	}
	slices.Sort(origins)
	return slices.Compact(origins)
}

// TotalBytes returns the number of bytes that a restore from the handles needs.
func TotalBytes(handles []*snapshotv1.TaskHandle) uint64 {
	var n uint64
	for _, h := range handles {
		n += uint64(len(h.GetSnapshot()))
	}
	for _, f := range Files(handles) {
		n += f.GetSize()
	}
	return n
}

// Unreferenced returns the names of the files that only dropped checkpoints need, sorted. It names nothing outside prefix, so that
// a job never deletes what belongs to another one or to a savepoint. Metadata files themselves are not among them.
func Unreferenced(prefix string, dropped, retained []*snapshotv1.CheckpointMetadata) []string {
	needed := make(map[string]struct{})
	for _, m := range retained {
		for _, f := range Files(m.GetTasks()) {
			needed[f.GetName()] = struct{}{}
		}
	}
	var names []string
	for _, m := range dropped {
		for _, f := range Files(m.GetTasks()) {
			if _, ok := needed[f.GetName()]; !ok && strings.HasPrefix(f.GetName(), prefix) {
				names = append(names, f.GetName())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// BuildMetadata returns the content of a checkpoint's metadata file. The handles are in the order of the tasks.
func BuildMetadata(cfg Config, checkpoint uint64, triggered time.Time, handles []*snapshotv1.TaskHandle) *snapshotv1.CheckpointMetadata {
	return &snapshotv1.CheckpointMetadata{
		FormatVersion:  checkpointfile.FormatVersion,
		ClusterId:      cfg.ClusterID,
		JobId:          cfg.JobID,
		Attempt:        cfg.Attempt,
		Checkpoint:     checkpoint,
		Fingerprint:    cfg.Fingerprint,
		MaxParallelism: cfg.MaxParallelism,
		TriggeredAtMs:  triggered.UnixMilli(),
		Tasks:          handles,
	}
}

// ownFiles returns the names of the files that the task wrote for this checkpoint.
func ownFiles(checkpoint uint64, h *snapshotv1.TaskHandle) []string {
	var names []string
	for _, f := range Files([]*snapshotv1.TaskHandle{h}) {
		if f.GetCheckpoint() == checkpoint {
			names = append(names, f.GetName())
		}
	}
	return names
}
