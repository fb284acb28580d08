package driver

import (
	"fmt"
	"strconv"
	"strings"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	kafkaslots "github.com/weir-stream/weir/sinks/kafka/slots"
)

// How workers fence former attempts. Names and shares of ids are the product's.

// fencesOf numbers a list of former attempts.
func (x *explorer) fencesOf(fs []*workerv1.FencedAttempt) uint32 {
	var name strings.Builder
	for _, f := range fs {
		for _, s := range f.GetSinks() {
			fmt.Fprintf(&name, "%d %s %d %d;", f.GetAttempt(), s.GetUid(), s.GetParallelism(), s.GetSlots())
		}
	}
	return x.fences.number(name.String(), fs)
}

// toFence returns the ids that one subtask has to initialise.
func (x *explorer) toFence(fences uint32, sub uint8) []uint8 {
	key := [2]uint32{fences, uint32(sub)}
	if ids, ok := x.shares[key]; ok {
		return ids
	}
	scope := operator.Scope{Subtask: int(sub), Parallelism: x.tasks()}
	for _, f := range x.fences.list[fences] {
		for _, s := range f.GetSinks() {
			if s.GetUid() == "out" {
				scope.Attempts = append(scope.Attempts, operator.FormerAttempt{
					Attempt: f.GetAttempt(), Parallelism: int(s.GetParallelism()), Slots: int(s.GetSlots()),
				})
			}
		}
	}
	var ids []uint8
	for _, name := range kafkaslots.NewScheme("w", sinks.Context{ClusterID: "c", JobID: exploredJob, UID: "out"}).Share(scope) {
		parts := strings.Split(name, ".")
		var n [3]uint8
		for i, p := range parts[len(parts)-3:] {
			v, err := strconv.ParseUint(p, 10, 8)
			if err != nil {
				panic(err)
			}
			n[i] = uint8(v)
		}
		ids = append(ids, idIndex(n[0], n[1], n[2]))
	}
	x.shares[key] = ids
	return ids
}

// fence initialises a task's share of the former attempts' ids that exist.
func (x *explorer) fence(t *taskManager, b *broker, sub uint8) (v violation) {
	t.tasks[sub].toFence = false
	for _, i := range x.toFence(t.fences, sub) {
		if b.ids[i].known {
			_, w := b.initialise(i)
			v = cmpViolation(v, w)
		}
	}
	x.freeRewritten(&t.tasks[sub])
	for s := range t.tasks {
		if t.tasks[s].toFence {
			return v
		}
	}
	t.state, t.started, t.fences = workerRunning, true, 0
	t.tell(upMsg{kind: uStarted})
	return v
}

// fenceAgain ends what the workers of former attempts have opened since they were fenced.
func (x *explorer) fenceAgain(t *taskManager, b *broker, m downMsg) (v violation) {
	for s := range t.tasks {
		if !t.tasks[s].here {
			continue
		}
		for _, i := range x.toFence(m.arg, uint8(s)) {
			if b.ids[i].ongoing {
				_, w := b.initialise(i)
				v = cmpViolation(v, w)
			}
		}
	}
	t.tell(upMsg{kind: uFenced, n: m.n})
	return v
}
