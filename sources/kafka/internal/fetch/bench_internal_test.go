package fetch

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkRecords takes an answer of 1 MB apart and decodes its records of 100 bytes.
func BenchmarkRecords(b *testing.B) {
	var rp kmsg.FetchResponseTopicPartition
	n := 0
	for base := int64(0); len(rp.RecordBatches) < 1<<20; base += 1000 {
		w := written{base: base, last: base + 999, time: 1_700_000_000_000}
		for i := range int64(1000) {
			w.records = append(w.records, Record{Offset: base + i, Millis: w.time + i/10, Key: make([]byte, 10), Value: make([]byte, 100)})
		}
		rp.RecordBatches = append(rp.RecordBatches, w.encode()...)
		n += 1000
	}
	b.ReportAllocs()
	b.ResetTimer()
	left := b.N
	for left > 0 {
		c, err := take(&rp, 0, decompressor)
		if err != nil {
			b.Fatal(err)
		}
		for i := range c.batches {
			for r := (Record{}); c.batches[i].Next(&r); {
				left--
			}
		}
	}
}
