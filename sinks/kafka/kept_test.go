package kafkasink

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/sinks/internal/journal"
)

func TestKeptRecordsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nullable := func(label string) []byte {
			if rapid.Bool().Draw(rt, label+" null") {
				return nil
			}
			return rapid.SliceOf(rapid.Byte()).Draw(rt, label)
		}
		want := keptRecord{
			topic: rapid.String().Draw(rt, "topic"), partition: rapid.Int32Range(AnyPartition, 1<<31-1).Draw(rt, "partition"),
			record: Record{Key: nullable("key"), Value: nullable("value")},
			millis: rapid.Int64().Draw(rt, "at"),
		}
		for range rapid.IntRange(0, 3).Draw(rt, "headers") {
			want.record.Headers = append(want.record.Headers, Header{Key: rapid.String().Draw(rt, "header"), Value: nullable("of header")})
		}
		got, err := decodeKept(appendKept(nil, want.topic, want.partition, &want.record, want.millis))
		require.NoError(rt, err)
		require.Equal(rt, want, got)
	})
}

func FuzzKeptRecord(f *testing.F) {
	f.Add(appendKept(nil, "topic", AnyPartition, &Record{Key: []byte("k")}, 1))
	f.Add(appendKept(nil, "topic", 7, &Record{Value: []byte{}, Headers: []Header{{Key: "h"}}}, -1))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := decodeKept(b)
		if err != nil {
			return
		}
		again, err := decodeKept(appendKept(nil, k.topic, k.partition, &k.record, k.millis))
		require.NoError(t, err)
		require.True(t, bytes.Equal(k.record.Key, again.record.Key) && bytes.Equal(k.record.Value, again.record.Value))
		require.Equal(t, k.partition, again.partition)
	})
}

// BenchmarkKept is what durable output adds to each record of 100 bytes.
func BenchmarkKept(b *testing.B) {
	w := journal.NewWriter(0)
	path := filepath.Join(b.TempDir(), "records")
	r := Record{Key: []byte("key-0001"), Value: make([]byte, 100)}
	var kept []byte
	const at = 1_700_000_000_000
	b.ReportAllocs()
	for b.Loop() {
		kept = appendKept(kept[:0], "totals", AnyPartition, &r, at)
		if err := w.Append(func() string { return path }, kept); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(kept)+1), "bytes/record")
}
