package postgressink

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-stream/weir/sinks"
)

// longestBase is the length from which cluster, job and uid are replaced by their hash; a gid has at most 200 bytes.
const longestBase = 120

// writer names one subtask of one attempt of a sink.
type writer struct {
	Sink    string `json:"sink"`
	Attempt uint64 `json:"attempt"`
	Subtask int    `json:"subtask"`
}

func sinkName(sc sinks.Context) string {
	name := strings.Join([]string{sc.ClusterID, sc.JobID, sc.UID}, ".")
	if len(name) > longestBase {
		sum := sha256.Sum256([]byte(sc.ClusterID + "\x00" + sc.JobID + "\x00" + sc.UID))
		name = fmt.Sprintf("%x", sum[:16])
	}
	return name
}

// prefix begins the gid of each of the writer's transactions; what follows is the sequence.
func (w writer) prefix() string { return fmt.Sprintf("weir.%s.%d.%d.", w.Sink, w.Attempt, w.Subtask) }

func (w writer) gid(sequence uint64) string { return w.prefix() + strconv.FormatUint(sequence, 10) }

// sequence returns that of a gid; ok is false for one that is not the writer's.
func (w writer) sequence(gid string) (n uint64, ok bool) {
	rest, ok := strings.CutPrefix(gid, w.prefix())
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(rest, 10, 64)
	return n, err == nil
}

// application is the application_name of the writer's connections. The server cuts it at 63 bytes, so the sink is in it as a hash.
func (w writer) application() string {
	sum := sha256.Sum256([]byte(w.Sink))
	return fmt.Sprintf("weir %x %d/%d", sum[:8], w.Attempt, w.Subtask)
}

// literal quotes a string for statements that take no parameters.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
