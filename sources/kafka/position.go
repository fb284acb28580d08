package kafkasource

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/sources"
)

// splitID identifies a partition for good.
type splitID struct {
	topic     kafkaconn.TopicID
	partition int32
}

// key returns the split's key in checkpoints: topic id in hexadecimal, a slash, the partition.
func (s splitID) key() string { return s.topic.String() + "/" + strconv.Itoa(int(s.partition)) }

// owner returns the subtask that reads the split. It spreads each topic's partitions evenly, topics starting at different subtasks, and
// must never change: restored positions are found by it.
func (s splitID) owner(parallelism int) int {
	return int((xxhash.Sum64(s.topic[:]) + uint64(s.partition)) % uint64(parallelism))
}

// Versions of the encoding below, which must stay readable. The first one has no epoch, and is that of positions without one.
const (
	positionWithoutEpoch = 1
	positionWithEpoch    = 2
)

// noEpoch is the epoch of a position of which it is not known.
const noEpoch = -1

// position is where reading goes on.
type position struct {
	id    splitID
	topic string // name at the time of the checkpoint, for messages
	next  int64  // offset
	epoch int32  // of the leader that wrote what is before next
}

var errPosition = errors.New("malformed position of a Kafka partition")

func (p position) encode() sources.Position {
	b := []byte{positionWithoutEpoch}
	if p.epoch != noEpoch {
		b[0] = positionWithEpoch
	}
	b = binary.AppendUvarint(b, uint64(p.next))
	if p.epoch != noEpoch {
		b = binary.AppendUvarint(b, uint64(p.epoch))
	}
	b = append(b, p.topic...)
	return sources.Position{Key: p.id.key(), Value: b}
}

func decodePosition(sp sources.Position) (position, error) {
	fail := func() (position, error) { return position{}, fmt.Errorf("%w: key %q", errPosition, sp.Key) }
	topic, partition, ok := strings.Cut(sp.Key, "/")
	if !ok || len(sp.Value) < 2 {
		return fail()
	}
	version := sp.Value[0]
	if version != positionWithoutEpoch && version != positionWithEpoch {
		return position{}, fmt.Errorf("position of version %d: this program reads versions up to %d; use the version of Weir that wrote it", version, positionWithEpoch)
	}
	p := position{epoch: noEpoch}
	id, err := hex.DecodeString(topic)
	if err != nil || len(id) != len(p.id.topic) {
		return fail()
	}
	copy(p.id.topic[:], id)
	n, err := strconv.ParseInt(partition, 10, 32)
	if err != nil || n < 0 {
		return fail()
	}
	p.id.partition = int32(n)
	next, size := binary.Uvarint(sp.Value[1:])
	if size <= 0 || next > 1<<63-1 {
		return fail()
	}
	p.next = int64(next)
	rest := sp.Value[1+size:]
	if version == positionWithEpoch {
		epoch, size := binary.Uvarint(rest)
		if size <= 0 || epoch > 1<<31-1 {
			return fail()
		}
		p.epoch, rest = int32(epoch), rest[size:]
	}
	p.topic = string(rest)
	return p, nil
}
