package kafkasink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/sinks"
)

// committableVersion is the version of the encoding below. Older ones must stay readable.
const committableVersion = 1

// prepared is what is needed to finish a prepared transaction, from any process at any time.
type prepared struct {
	ID       string
	Identity Identity
	// Started is when the transaction began, at the latest.
	Started time.Time
	Topics  []preparedTopic
}

type preparedTopic struct {
	Name  string
	ID    kafkaconn.TopicID
	Spans []span
}

// span is what a transaction wrote to one partition.
type span struct {
	Partition   int32
	First, Last int64 // offsets
	Count       int64
}

// parts describes the output.
func (p *prepared) parts() (out []sinks.Part) {
	for _, t := range p.Topics {
		for _, s := range t.Spans {
			out = append(out, sinks.Part{Place: place(t.Name, s.Partition), Records: s.Count, Detail: fmt.Sprintf("offsets %d to %d", s.First, s.Last)})
		}
	}
	return out
}

// place names a partition for people.
func place(topic string, partition int32) string { return fmt.Sprintf("%s/%d", topic, partition) }

// String describes the output for people.
func (p *prepared) String() string {
	var b strings.Builder
	for i, part := range p.parts() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(part.String())
	}
	return b.String()
}

func (p *prepared) encode() sinks.Committable {
	b := binary.AppendUvarint(nil, uint64(p.Identity.EndTxnVersion))
	b = binary.AppendVarint(b, p.Identity.ProducerID)
	b = binary.AppendVarint(b, int64(p.Identity.ProducerEpoch))
	b = binary.AppendVarint(b, p.Started.UnixMilli())
	b = appendString(b, p.ID)
	b = binary.AppendUvarint(b, uint64(len(p.Topics)))
	for _, t := range p.Topics {
		b = appendString(b, t.Name)
		b = append(b, t.ID[:]...)
		b = binary.AppendUvarint(b, uint64(len(t.Spans)))
		for _, s := range t.Spans {
			b = binary.AppendUvarint(b, uint64(s.Partition))
			b = binary.AppendUvarint(b, uint64(s.First))
			b = binary.AppendUvarint(b, uint64(s.Last))
			b = binary.AppendUvarint(b, uint64(s.Count))
		}
	}
	return sinks.Committable{Version: committableVersion, Payload: b}
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errMalformed = errors.New("malformed committable")

func decodeCommittable(c sinks.Committable) (*prepared, error) {
	if c.Version != committableVersion {
		return nil, fmt.Errorf("committable of version %d: this program reads version %d; use the version of Weir that wrote it", c.Version, committableVersion)
	}
	d := decoder{c.Payload, nil}
	var p prepared
	p.Identity.EndTxnVersion = int16(d.uvarint(uint64(EndTxnV1), uint64(EndTxnV2)))
	p.Identity.ProducerID = d.varint()
	p.Identity.ProducerEpoch = int16(d.varint())
	p.Started = time.UnixMilli(d.varint())
	p.ID = string(d.bytes(d.length()))
	for range d.length() {
		t := preparedTopic{Name: string(d.bytes(d.length()))}
		copy(t.ID[:], d.bytes(len(t.ID)))
		for range d.length() {
			t.Spans = append(t.Spans, span{
				Partition: int32(d.uvarint(0, 1<<31-1)), First: int64(d.uvarint(0, 1<<63-1)),
				Last: int64(d.uvarint(0, 1<<63-1)), Count: int64(d.uvarint(0, 1<<63-1)),
			})
			if d.err != nil {
				return nil, d.err
			}
		}
		p.Topics = append(p.Topics, t)
		if d.err != nil {
			return nil, d.err
		}
	}
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("%w: %d bytes too many", errMalformed, len(d.rest))
	}
	if d.err != nil {
		return nil, d.err
	}
	return &p, nil
}

// decoder reads fields until the first error, after which it returns zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = fmt.Errorf("%w: it is cut off or out of range", errMalformed)
	}
	d.rest = nil
}

func (d *decoder) uvarint(least, most uint64) uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v < least || v > most {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// length reads a count of things that take at least a byte each.
func (d *decoder) length() int { return int(d.uvarint(0, uint64(len(d.rest)))) }

func (d *decoder) bytes(n int) []byte {
	if n > len(d.rest) {
		d.fail()
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}
