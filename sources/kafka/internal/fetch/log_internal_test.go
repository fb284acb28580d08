package fetch

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kgo"
)

// written is a batch as a test writes it.
type written struct {
	base        int64
	last        int64 // offset
	producer    int64
	attributes  uint16
	leaderEpoch int32
	time        int64 // of the first record
	latest      int64
	records     []Record
	codec       kgo.CompressionCodec
}

// encode returns the batch as a broker keeps it.
func (w written) encode() []byte {
	var body []byte
	for _, r := range w.records {
		one := []byte{0}
		one = binary.AppendVarint(one, r.Millis-w.time)
		one = binary.AppendVarint(one, r.Offset-w.base)
		one = appendNullable(one, r.Key)
		one = appendNullable(one, r.Value)
		one = binary.AppendVarint(one, int64(len(r.Headers)))
		for _, h := range r.Headers {
			one = appendNullable(one, []byte(h.Key))
			one = appendNullable(one, h.Value)
		}
		body = append(binary.AppendVarint(body, int64(len(one))), one...)
	}
	return w.frame(body)
}

// frame puts a header before records as they are encoded.
func (w written) frame(body []byte) []byte {
	attributes := w.attributes
	if c, err := kgo.DefaultCompressor(w.codec); err == nil && c != nil {
		packed, codec := c.Compress(&bytes.Buffer{}, body)
		body, attributes = packed, attributes|uint16(codec)
	}
	h := make([]byte, headerSize, headerSize+len(body))
	be := binary.BigEndian
	be.PutUint64(h, uint64(w.base))
	be.PutUint32(h[atLength:], uint32(headerSize+len(body)-atLength-4))
	be.PutUint32(h[atLeaderEpoch:], uint32(w.leaderEpoch))
	h[atMagic] = magic
	be.PutUint16(h[atAttributes:], attributes)
	be.PutUint32(h[atLastDelta:], uint32(w.last-w.base))
	be.PutUint64(h[atBaseTime:], uint64(w.time))
	be.PutUint64(h[atLatestTime:], uint64(w.latest))
	be.PutUint64(h[atProducerID:], uint64(w.producer))
	be.PutUint32(h[atCount:], uint32(len(w.records)))
	h = append(h, body...)
	sign(h)
	return h
}

// sign sets the checksum.
func sign(frame []byte) {
	binary.BigEndian.PutUint32(frame[atChecksum:], crc32.Checksum(frame[atAttributes:], castagnoli))
}

func appendNullable(to, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(to, -1)
	}
	return append(binary.AppendVarint(to, int64(len(v))), v...)
}

// marker returns the control batch that ends a transaction.
func marker(base, producer int64, commit bool) written {
	key := []byte{0, 0, 0, 0}
	if commit {
		key[3] = 1
	}
	return written{
		base: base, last: base, producer: producer, attributes: control | transactional,
		records: []Record{{Key: key, Value: []byte{0, 0, 0, 0, 0, 0}, Offset: base}},
	}
}
