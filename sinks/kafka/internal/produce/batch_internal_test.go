package produce

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// decoded is a record as another's decoder reads it.
type decoded struct {
	Key, Value []byte
	Headers    []kgo.RecordHeader
	Millis     int64
}

// decode reads a sealed batch with kmsg.
func decode(t require.TestingT, raw []byte) (kmsg.RecordBatch, []decoded) {
	var b kmsg.RecordBatch
	require.NoError(t, b.ReadFrom(raw))
	var out []decoded
	rest := b.Records
	for len(rest) > 0 {
		length, n := binary.Varint(rest)
		require.Positive(t, n)
		var r kmsg.Record
		require.NoError(t, r.ReadFrom(rest[:n+int(length)]))
		rest = rest[n+int(length):]
		require.Equal(t, int32(len(out)), r.OffsetDelta)
		d := decoded{Key: r.Key, Value: r.Value, Millis: b.FirstTimestamp + r.TimestampDelta64}
		for _, h := range r.Headers {
			d.Headers = append(d.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		out = append(out, d)
	}
	return b, out
}

func plain(records []byte) ([]byte, kgo.CompressionCodecType) { return records, kgo.CodecNone }

func TestBatchIsWhatOthersRead(t *testing.T) {
	optional := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 300))
	record := rapid.Custom(func(t *rapid.T) decoded {
		d := decoded{Key: optional.Draw(t, "key"), Value: optional.Draw(t, "value"), Millis: rapid.Int64Range(-1, 1<<45).Draw(t, "millis")}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			d.Headers = append(d.Headers, kgo.RecordHeader{Key: rapid.String().Draw(t, "header"), Value: optional.Draw(t, "header value")})
		}
		return d
	})
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(record, 1, 40).Draw(t, "records")
		limit := rapid.IntRange(200, 4000).Draw(t, "limit")
		who := identity{rapid.Int64Min(0).Draw(t, "id"), rapid.Int16Min(0).Draw(t, "epoch"), rapid.Bool().Draw(t, "transactional")}
		sequence := rapid.Int32Min(0).Draw(t, "sequence")
		var b batch
		var got []decoded
		for i := 0; i < len(records); {
			b.reset()
			first, latest, payload := i, records[i].Millis, 0
			for ; i < len(records); i++ {
				r := records[i]
				if !b.append(r.Key, r.Value, r.Headers, r.Millis, limit) {
					require.Greater(t, i, first, "the first record always has room")
					break
				}
				latest, payload = max(latest, r.Millis), payload+len(r.Key)+len(r.Value)
				for _, h := range r.Headers {
					payload += len(h.Key) + len(h.Value)
				}
			}
			n := int32(i - first)
			if n > 1 {
				require.LessOrEqual(t, len(b.buf), limit)
			}
			b.who, b.sequence = who, sequence
			b.seal(plain)
			raw, out := decode(t, bytes.Clone(b.buf))
			require.Len(t, out, int(n))
			require.Equal(t, n, raw.NumRecords)
			require.Equal(t, n-1, raw.LastOffsetDelta)
			require.Equal(t, n, b.records)
			require.Equal(t, payload, b.payload)
			require.Equal(t, int32(len(b.buf)-12), raw.Length)
			require.EqualValues(t, 2, raw.Magic)
			require.Equal(t, latest, raw.MaxTimestamp)
			require.Equal(t, who, identity{id: raw.ProducerID, epoch: raw.ProducerEpoch, transactional: raw.Attributes == 1<<4}) //nolint:testifylint // who is what was drawn
			require.Equal(t, sequence, raw.FirstSequence)
			require.Equal(t, crc32.Checksum(b.buf[21:], crc32.MakeTable(crc32.Castagnoli)), uint32(raw.CRC))
			got = append(got, out...)
		}
		require.Empty(t, cmp.Diff(records, got))
	})
}

func TestSequencesWrap(t *testing.T) {
	require.EqualValues(t, 7, after(4, 3))
	require.EqualValues(t, 0, after(1<<31-1, 1))
	require.EqualValues(t, 4, after(1<<31-2, 6))
}

// The values are those of the Java client's own tests.
func TestKeysAreSpreadAsByJava(t *testing.T) {
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		require.Equal(t, want, int32(murmur2([]byte(key))), key)
	}
}

func TestRecordCostsNoAllocation(t *testing.T) {
	b := batch{}
	b.reset()
	value := make([]byte, 100)
	for b.append(nil, value, nil, 1, 1<<20) {
		continue
	}
	require.Zero(t, testing.AllocsPerRun(20, func() {
		b.reset()
		for b.append(nil, value, nil, 1, 1<<20) {
			continue
		}
	}))
}

func TestOverheadIsBounded(t *testing.T) {
	optional := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 300))
	rapid.Check(t, func(t *rapid.T) {
		key, value := optional.Draw(t, "key"), optional.Draw(t, "value")
		var headers []kgo.RecordHeader
		for range rapid.IntRange(0, 200).Draw(t, "headers") {
			headers = append(headers, kgo.RecordHeader{Key: rapid.String().Draw(t, "header"), Value: optional.Draw(t, "header value")})
		}
		require.LessOrEqual(t, EncodedSize(key, value, headers), Payload(key, value, headers)+MaxOverhead(len(headers)))
	})
}
