package streamtest

import (
	"google.golang.org/protobuf/proto"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

// Checkpoint is the state of a job, from which another one can be started.
type Checkpoint struct {
	number  uint64
	attempt uint64
	files   *files
	// operators holds the encoded snapshots by uid and subtask.
	operators map[string][][]byte
}

func (c *Checkpoint) add(uid string, subtask, parallelism int, s *snapshotv1.OperatorSnapshot) {
	if c.operators[uid] == nil {
		c.operators[uid] = make([][]byte, parallelism)
	}
	data, err := proto.Marshal(s)
	if err != nil {
		panic(err) // a message of our own that cannot be encoded is a fault of this package
	}
	c.operators[uid][subtask] = data
}

// restored returns what an instance is restored from: its own snapshot, or after a change of parallelism those of all former ones,
// without their committables.
func (c *Checkpoint) restored(uid string, subtask, parallelism int) []*snapshotv1.OperatorSnapshot {
	if c == nil {
		return nil
	}
	all := c.operators[uid]
	if len(all) == parallelism {
		return []*snapshotv1.OperatorSnapshot{decodeSnapshot(all[subtask])}
	}
	var snapshots []*snapshotv1.OperatorSnapshot
	for _, data := range all {
		snapshots = append(snapshots, decodeSnapshot(data))
	}
	return snapshots
}

// committables returns the prepared transactions that fall to an instance.
func (c *Checkpoint) committables(uid string, subtask, parallelism int) []*snapshotv1.Committable {
	if c == nil {
		return nil
	}
	var cs []*snapshotv1.Committable
	for former, data := range c.operators[uid] {
		if former%parallelism == subtask {
			cs = append(cs, decodeSnapshot(data).GetCommittables()...)
		}
	}
	return cs
}

func decodeSnapshot(data []byte) *snapshotv1.OperatorSnapshot {
	s := &snapshotv1.OperatorSnapshot{}
	if err := proto.Unmarshal(data, s); err != nil {
		panic(err) // encoded by this package
	}
	return s
}
