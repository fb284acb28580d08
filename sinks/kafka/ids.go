package kafkasink

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// longestID is the length from which cluster, job and uid are replaced by their hash.
const longestID = 200

// idScheme names the transactional ids of one sink. Every attempt has ids of its own: a frozen writer that wakes before it initialised
// its id would otherwise end its successor's prepared transaction. They are known in advance, so a later attempt can end whatever an
// earlier one left.
type idScheme struct{ base string }

func newIDScheme(prefix string, sc sinks.Context) idScheme {
	base := strings.Join([]string{prefix, sc.ClusterID, sc.JobID, sc.UID}, ".")
	if len(base) > longestID {
		sum := sha256.Sum256([]byte(sc.ClusterID + "\x00" + sc.JobID + "\x00" + sc.UID))
		base = fmt.Sprintf("%s.%x", prefix, sum[:16])
	}
	return idScheme{base}
}

func (s idScheme) id(attempt uint64, subtask, slot int) string {
	return fmt.Sprintf("%s.%d.%d.%d", s.base, attempt, subtask, slot)
}

// share returns the ids of former attempts that one subtask has to fence.
func (s idScheme) share(scope operator.Scope) []string {
	var ids []string
	for _, a := range scope.Attempts {
		for subtask := scope.Subtask; subtask < a.Parallelism; subtask += scope.Parallelism {
			for slot := range a.Slots {
				ids = append(ids, s.id(a.Attempt, subtask, slot))
			}
		}
	}
	return ids
}
