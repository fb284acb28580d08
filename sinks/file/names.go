package filesink

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// hidden is the directory of everything that readers are not to see.
const hidden = ".weir"

// longestUID is how many bytes of the uid are in a name.
const longestUID = 40

// sinkName names a sink in file names: its uid for people, and a hash that makes it unique.
func sinkName(sc sinks.Context) string {
	sum := sha256.Sum256([]byte(sc.ClusterID + "\x00" + sc.JobID + "\x00" + sc.UID))
	uid := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, sc.UID)
	return fmt.Sprintf("%s-%x", uid[:min(len(uid), longestUID)], sum[:8])
}

// writer names one subtask of one attempt of a sink.
type writer struct {
	Sink    string `json:"sink"`
	Attempt uint64 `json:"attempt"`
	Subtask int    `json:"subtask"`
}

func sinkDir(sink string) string   { return hidden + "/" + sink + "/" }
func fenceName(sink string) string { return sinkDir(sink) + "fence" }

// openedName is the file with the newest attempt whose first subtask has opened the place.
func openedName(sink string) string { return sinkDir(sink) + "opened" }

// id names a transaction for people.
func (w writer) id(sequence uint64) string {
	return fmt.Sprintf("%s/%d.%d/%06d", w.Sink, w.Attempt, w.Subtask, sequence)
}

// settledName is the file with the sequence up to which all transactions are committed.
func (w writer) settledName() string {
	return fmt.Sprintf("%scommitted/%d.%d", sinkDir(w.Sink), w.Attempt, w.Subtask)
}

func (w writer) pendingName(sequence uint64, part int) string {
	return fmt.Sprintf("%s/%s-%03d%s", hidden, w.id(sequence), part, pendingSuffix)
}

func (w writer) finalName(partition string, sequence uint64, part int, extension string) string {
	name := fmt.Sprintf("%s-%d-%d-%06d-%03d%s", w.Sink, w.Attempt, w.Subtask, sequence, part, extension)
	if partition == "" {
		return name
	}
	return partition + "/" + name
}

// leftover is a file below .weir that is not finished.
type leftover struct {
	writer
	sequence uint64
	pending  bool
}

// parseLeftover reads the name of a file that is in progress or pending; ok is false for any other.
func parseLeftover(sink, name string) (l leftover, ok bool) {
	rest, ok := strings.CutPrefix(name, sinkDir(sink))
	if !ok {
		return l, false
	}
	dir, file, ok := strings.Cut(rest, "/")
	if !ok {
		return l, false
	}
	attempt, subtask, ok := strings.Cut(dir, ".")
	sequence, _, _ := strings.Cut(file, "-")
	a, aerr := strconv.ParseUint(attempt, 10, 64)
	s, serr := strconv.Atoi(subtask)
	n, nerr := strconv.ParseUint(sequence, 10, 64)
	if !ok || aerr != nil || serr != nil || nerr != nil {
		return l, false
	}
	return leftover{writer{sink, a, s}, n, strings.HasSuffix(file, pendingSuffix)}, true
}

// checkPartition refuses what is no path below the place, or one that readers would overlook.
func checkPartition(partition string) error {
	if partition == "" {
		return nil
	}
	bad := !fs.ValidPath(partition) || partition == "." || strings.ContainsAny(partition, "\\\x00")
	for part := range strings.SplitSeq(partition, "/") {
		bad = bad || strings.HasPrefix(part, ".") || strings.HasPrefix(part, "_")
	}
	if bad {
		return operator.Fatal(fmt.Errorf("partition %q: it must be a relative path with slashes, such as date=2026-01-31/hour=04, whose parts begin with neither a dot nor an underscore", partition))
	}
	return nil
}
