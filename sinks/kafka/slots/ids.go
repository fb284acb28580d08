package slots

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// longestID is the length from which cluster, job and uid are replaced by their hash.
const longestID = 200

// hashMark begins a hash. No uid has it, as written in an id.
const hashMark = "#"

// unambiguous writes a uid so that it holds no separator. Ids of clusters and jobs hold none.
var unambiguous = strings.NewReplacer("%", "%25", ".", "%2E", hashMark, "%23")

// Scheme names the transactional ids of one sink. Every attempt has ids of its own: a frozen writer that wakes before it initialised
// its id would otherwise end its successor's prepared transaction. They are known in advance, so a later attempt can end whatever an
// earlier one left.
//
// No two sinks share an id, whatever their prefixes and uids: read from its end an id can be taken apart in one way only, and a hash is
// marked as one. A prefix may hold anything.
type Scheme struct{ base, cluster string }

// NewScheme returns the names of one sink.
func NewScheme(prefix string, sc sinks.Context) Scheme {
	base := strings.Join([]string{prefix, sc.ClusterID, sc.JobID, unambiguous.Replace(sc.UID)}, ".")
	if len(base) > longestID {
		sum := sha256.Sum256([]byte(sc.ClusterID + "\x00" + sc.JobID + "\x00" + sc.UID))
		base = fmt.Sprintf("%s.%s%x", prefix, hashMark, sum[:16])
	}
	return Scheme{base: base, cluster: strings.Join([]string{prefix, sc.ClusterID, ""}, ".")}
}

// Parse takes apart an id of this sink; ok is false for any other.
func (s Scheme) Parse(id string) (attempt uint64, subtask, slot int, ok bool) {
	rest, ok := strings.CutPrefix(id, s.base+".")
	if !ok {
		return 0, 0, 0, false
	}
	parts := strings.Split(rest, ".")
	if len(parts) != 3 {
		return 0, 0, 0, false
	}
	attempt, err := strconv.ParseUint(parts[0], 10, 64)
	subtask, err2 := strconv.Atoi(parts[1])
	slot, err3 := strconv.Atoi(parts[2])
	if err != nil || err2 != nil || err3 != nil || subtask < 0 || slot < 0 || s.ID(attempt, subtask, slot) != id {
		return 0, 0, 0, false
	}
	return attempt, subtask, slot, true
}

// Job returns the job that an id of the same cluster and prefix belongs to; ok is false for ids of other origin, and for those too long
// to hold the job's name.
func (s Scheme) Job(id string) (job string, ok bool) {
	rest, ok := strings.CutPrefix(id, s.cluster)
	if !ok {
		return "", false
	}
	job, rest, ok = strings.Cut(rest, ".")
	return job, ok && job != "" && strings.Count(rest, ".") == 3
}

// ID names the transactional id of a slot.
func (s Scheme) ID(attempt uint64, subtask, slot int) string {
	return fmt.Sprintf("%s.%d.%d.%d", s.base, attempt, subtask, slot)
}

// Share returns the ids of former attempts that one subtask has to fence.
func (s Scheme) Share(scope operator.Scope) []string {
	var ids []string
	for _, a := range scope.Attempts {
		for subtask := scope.Subtask; subtask < a.Parallelism; subtask += scope.Parallelism {
			for slot := range a.Slots {
				ids = append(ids, s.ID(a.Attempt, subtask, slot))
			}
		}
	}
	return ids
}
