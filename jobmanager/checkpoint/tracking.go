package checkpoint

import (
	"slices"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

// files tracks which files retained checkpoints protect, and which were written for checkpoints that failed.
type files struct {
	retained []protected // as the log retains them, oldest first
	// useless are names that may be deleted when the next checkpoint completes: only then is it certain that no task builds on them.
	useless []string
	// lost are ids of failed checkpoints, oldest first, whose acknowledgements may still come.
	lost []uint64
}

type protected struct {
	checkpoint uint64
	names      map[string]struct{}
}

// maxLost bounds the memory for late acknowledgements. Files of later ones are found by listing the storage.
const maxLost = 100

// unprotected returns a file of the handles that may be deleted at any moment, or nothing. Files of up to the restored checkpoint
// are safe, since the log keeps what an attempt started from.
//
// The log checks the same by checkpoint. This check is by file: a retained checkpoint protects the files it names, not all that were
// written with them.
func (f *files) unprotected(checkpoint, restored uint64, handles []*snapshotv1.TaskHandle) string {
	for _, ref := range Files(handles) {
		if ref.GetCheckpoint() == checkpoint || ref.GetCheckpoint() <= restored {
			continue
		}
		if !f.protects(ref.GetName()) {
			return ref.GetName()
		}
	}
	return ""
}

func (f *files) protects(name string) bool {
	return slices.ContainsFunc(f.retained, func(p protected) bool { _, ok := p.names[name]; return ok })
}

// completed takes note of a completed checkpoint and returns the useless files of failed ones before it.
func (f *files) completed(checkpoint uint64, retained int, handles []*snapshotv1.TaskHandle) []string {
	p := protected{checkpoint, make(map[string]struct{})}
	for _, ref := range Files(handles) {
		p.names[ref.GetName()] = struct{}{}
	}
	f.retained = append(f.retained, p)
	f.retained = slices.Delete(f.retained, 0, max(0, len(f.retained)-retained))
	names := slices.DeleteFunc(f.useless, f.protects)
	f.useless = nil
	return names
}

func (f *files) failed(checkpoint uint64, names []string) {
	f.lost = append(f.lost, checkpoint)
	f.lost = slices.Delete(f.lost, 0, max(0, len(f.lost)-maxLost))
	f.useless = append(f.useless, names...)
}

// late takes names that a failed checkpoint turns out to have written, and returns them when they are useless already.
func (f *files) late(checkpoint, completed uint64, names []string) []string {
	switch {
	case !slices.Contains(f.lost, checkpoint):
		return nil
	case checkpoint < completed:
		return slices.DeleteFunc(names, f.protects)
	}
	f.useless = append(f.useless, names...)
	return nil
}
