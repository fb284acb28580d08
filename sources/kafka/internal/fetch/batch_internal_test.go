package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

var decompressor = kgo.DefaultDecompressor()

// records returns what is in an answer, and the offset after it.
func records(rp *kmsg.FetchResponseTopicPartition, wanted int64) ([]Record, int64, error) {
	c, err := take(rp, wanted, decompressor)
	if err != nil {
		return nil, c.next, err
	}
	var out []Record
	for _, b := range c.batches {
		if _, err := b.Open(decompressor); err != nil {
			return nil, c.next, err
		}
		for r := (Record{}); b.Next(&r); {
			if r.Offset >= wanted {
				out = append(out, r)
			}
		}
		if b.Err() != nil {
			return nil, c.next, b.Err()
		}
	}
	return out, c.next, nil
}

// byKgo returns what franz-go takes the same answer for.
func byKgo(rp *kmsg.FetchResponseTopicPartition, wanted int64) ([]Record, int64, error) {
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: wanted, IsolationLevel: kgo.ReadCommitted(), Topic: "t"}, rp, decompressor, nil)
	var out []Record
	for _, r := range fp.Records {
		out = append(out, Record{Key: r.Key, Value: r.Value, Headers: r.Headers, Offset: r.Offset, Millis: r.Timestamp.UnixMilli()})
	}
	return out, next, fp.Err
}

func answerOf(batches ...written) *kmsg.FetchResponseTopicPartition {
	rp := kmsg.NewFetchResponseTopicPartition()
	for _, b := range batches {
		rp.RecordBatches = append(rp.RecordBatches, b.encode()...)
	}
	return &rp
}

func drawBytes(t *rapid.T, name string) []byte {
	switch rapid.IntRange(0, 5).Draw(t, name+" kind") {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2: // longer than one byte of a length tells
		return make([]byte, rapid.IntRange(60, 20_000).Draw(t, name+" size"))
	}
	return rapid.SliceOfN(rapid.Byte(), 1, 70).Draw(t, name)
}

var codecs = []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}

// TestBatchesAreReadAsTheyWereWritten: whatever is written, with offsets that compaction left out, is read from wherever reading begins, and
// franz-go reads the same.
func TestBatchesAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		next := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		first := next
		var all []Record
		var batches []written
		for range rapid.IntRange(0, 4).Draw(t, "batches") {
			w := written{
				base: next, time: rapid.Int64Range(-1, 1<<41).Draw(t, "time"), latest: rapid.Int64Range(0, 1<<41).Draw(t, "latest"),
				codec: rapid.SampledFrom(codecs).Draw(t, "codec"), leaderEpoch: 7, producer: -1,
			}
			if rapid.Bool().Draw(t, "by the log's time") {
				w.attributes |= logAppendTime
			}
			for range rapid.IntRange(0, 5).Draw(t, "records") {
				next += rapid.Int64Range(0, 100).Draw(t, "gap")
				r := Record{Key: drawBytes(t, "key"), Value: drawBytes(t, "value"), Offset: next, Millis: w.time + rapid.Int64Range(-1000, 1000).Draw(t, "delta")}
				for h := range rapid.IntRange(0, 2).Draw(t, "headers") {
					r.Headers = append(r.Headers, kgo.RecordHeader{Key: fmt.Sprint(h), Value: drawBytes(t, "header")})
				}
				w.records = append(w.records, r)
				if w.attributes&logAppendTime != 0 {
					r.Millis = w.latest
				}
				all = append(all, r)
				next++
			}
			next += rapid.Int64Range(0, 10).Draw(t, "gap at the end")
			if next == w.base { // a batch has one offset at least
				next++
			}
			w.last = next - 1
			batches = append(batches, w)
		}
		rp := answerOf(batches...)
		wanted := rapid.Int64Range(first, next).Draw(t, "wanted")
		var want []Record
		for _, r := range all {
			if r.Offset >= wanted {
				want = append(want, r)
			}
		}
		got, end, err := records(rp, wanted)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got))
		require.Equal(t, next, end)
		theirs, end, err := byKgo(rp, wanted)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, theirs))
		require.Equal(t, next, end)
		if len(batches) > 0 {
			c, err := take(rp, first, decompressor)
			require.NoError(t, err)
			require.EqualValues(t, 7, c.epoch)
		}

		// An answer that was cut off holds the whole batches before that.
		cutAt := rapid.IntRange(0, len(rp.RecordBatches)).Draw(t, "cut at")
		whole := 0
		wantNext := wanted
		for _, w := range batches {
			if whole += len(w.encode()); whole <= cutAt {
				wantNext = max(wanted, w.last+1)
			}
		}
		rp.RecordBatches = rp.RecordBatches[:cutAt]
		got, end, err = records(rp, wanted)
		require.NoError(t, err)
		require.Equal(t, wantNext, end)
		for len(want) > 0 && want[len(want)-1].Offset >= wantNext {
			want = want[:len(want)-1]
		}
		require.Len(t, got, len(want))
	})
}

// TestOfTransactionsOnlyCommittedRecordsAreRead: producers whose transactions lie in each other, some of them open at the end, read from
// anywhere with what a broker tells of aborted ones, in any order.
func TestOfTransactionsOnlyCommittedRecordsAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		next := int64(rapid.IntRange(0, 3).Draw(t, "base"))
		var (
			log     []written
			open    = map[int64]int64{} // first offset by producer
			pending = map[int64][]int{} // batches by producer
			aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
			dropped = map[int]bool{}
			ends    []int64 // of aborted
		)
		for range rapid.IntRange(0, 20).Draw(t, "batches") {
			producer := rapid.Int64Range(1, 3).Draw(t, "producer")
			_, isOpen := open[producer]
			switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
			case kind == 0: // without a transaction
				log = append(log, written{base: next, last: next, producer: -1, records: []Record{{Offset: next, Value: []byte("plain")}}})
			case kind <= 2 || !isOpen:
				if !isOpen {
					open[producer] = next
				}
				n := rapid.Int64Range(1, 3).Draw(t, "records")
				w := written{base: next, last: next + n - 1, producer: producer, attributes: transactional}
				for i := range n {
					w.records = append(w.records, Record{Offset: next + i, Value: fmt.Appendf(nil, "of %d", producer)})
				}
				pending[producer] = append(pending[producer], len(log))
				log = append(log, w)
			default:
				commit := kind == 3
				log = append(log, marker(next, producer, commit))
				if !commit {
					a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
					a.ProducerID, a.FirstOffset = producer, open[producer]
					aborted, ends = append(aborted, a), append(ends, next)
					for _, i := range pending[producer] {
						dropped[i] = true
					}
				}
				delete(open, producer)
				delete(pending, producer)
			}
			next = log[len(log)-1].last + 1
		}
		stable := next // the last stable offset: a broker sends nothing from there on
		for _, first := range open {
			stable = min(stable, first)
		}
		wanted := rapid.Int64Range(0, stable).Draw(t, "wanted")
		rp := kmsg.NewFetchResponseTopicPartition()
		want, wantNext := []Record(nil), wanted
		for i, w := range log {
			if w.base >= stable || w.last < wanted {
				continue
			}
			rp.RecordBatches = append(rp.RecordBatches, w.encode()...)
			wantNext = w.last + 1
			for _, r := range w.records {
				if r.Offset >= wanted && !dropped[i] && w.attributes&control == 0 {
					want = append(want, r)
				}
			}
		}
		for i, a := range aborted {
			if ends[i] >= wanted {
				rp.AbortedTransactions = append(rp.AbortedTransactions, a)
			}
		}
		rp.AbortedTransactions = rapid.Permutation(rp.AbortedTransactions).Draw(t, "order")
		for name, read := range map[string]func(*kmsg.FetchResponseTopicPartition, int64) ([]Record, int64, error){"ours": records, "franz-go": byKgo} {
			got, end, err := read(&rp, wanted)
			require.NoError(t, err, name)
			require.Empty(t, cmp.Diff(want, got), name)
			require.Equal(t, max(wanted, wantNext), end, name)
		}
	})
}

// TestDamageIsFound: whatever happens to one byte that the checksum is about, no other records come of it.
func TestDamageIsFound(t *testing.T) {
	w := written{base: 10, last: 11, records: []Record{{Offset: 10, Key: []byte("k"), Value: []byte("v")}, {Offset: 11, Value: []byte("w")}}}
	rp := answerOf(w)
	frame := rp.RecordBatches
	for i := atMagic; i < len(frame); i++ {
		for bit := range 8 {
			frame[i] ^= 1 << bit
			_, next, err := records(rp, 10)
			if i == atMagic {
				require.ErrorIs(t, err, ErrFormat)
			} else {
				require.ErrorIs(t, err, ErrCorrupt, "byte %d", i)
			}
			require.ErrorContains(t, err, "offset 10")
			require.EqualValues(t, 10, next)
			frame[i] ^= 1 << bit
		}
	}
	_, next, err := records(rp, 10)
	require.NoError(t, err)
	require.EqualValues(t, 12, next)
	binary.BigEndian.PutUint32(frame[atLength:], 40)
	_, _, err = records(rp, 10)
	require.ErrorIs(t, err, ErrCorrupt)
	binary.BigEndian.PutUint32(frame[atLength:], 1<<31)
	_, _, err = records(rp, 10)
	require.ErrorIs(t, err, ErrCorrupt, "a negative length")
}

func TestFormatsOfOldAreNamed(t *testing.T) {
	frame := written{base: 5, last: 5, records: []Record{{Offset: 5}}}.encode()
	frame[atMagic] = 1
	_, _, err := cut(frame)
	require.ErrorIs(t, err, ErrFormat)
	require.ErrorContains(t, err, "offset 5 has message format v1")
}

// TestMalformedRecordsAreErrors: batches whose checksum is right and whose records are not.
func TestMalformedRecordsAreErrors(t *testing.T) {
	v := func(values ...int64) (out []byte) {
		for _, n := range values {
			out = binary.AppendVarint(out, n)
		}
		return out
	}
	sized := func(body []byte) []byte { return append(v(int64(len(body))), body...) }
	for name, body := range map[string][]byte{
		"nothing":                      {},
		"a length of nothing":          v(0),
		"a negative length":            v(-1),
		"longer than the batch":        v(1000),
		"a length without an end":      {0xff, 0xff},
		"attributes only":              sized([]byte{0}),
		"an offset before the batch":   sized(append([]byte{0}, v(0, -1, -1, -1, 0)...)),
		"an offset behind the batch":   sized(append([]byte{0}, v(0, 3, -1, -1, 0)...)),
		"a long key":                   sized(append([]byte{0}, v(0, 0, 100)...)),
		"a huge key":                   sized(append([]byte{0}, v(0, 0, 1<<62)...)),
		"a long value":                 sized(append([]byte{0}, v(0, 0, -1, 100)...)),
		"no headers' number":           sized(append([]byte{0}, v(0, 0, -1, -1)...)),
		"a negative number of headers": sized(append([]byte{0}, v(0, 0, -1, -1, -1)...)),
		"very many headers":            sized(append([]byte{0}, v(0, 0, -1, -1, 1<<40)...)),
		"a header's long name":         sized(append([]byte{0}, v(0, 0, -1, -1, 1, 9)...)),
		"a header without a name":      sized(append([]byte{0}, v(0, 0, -1, -1, 1, -1, -1)...)),
		"a long header":                sized(append([]byte{0}, v(0, 0, -1, -1, 1, 0, 9)...)),
		"bytes behind":                 sized(append([]byte{0}, v(0, 0, -1, -1, 0, 0)...)),
		"one record of two":            sized(append([]byte{0}, v(0, 0, -1, -1, 0)...)),
		"the same offset twice": append(sized(append([]byte{0}, v(0, 1, -1, -1, 0)...)),
			sized(append([]byte{0}, v(0, 1, -1, -1, 0)...))...),
	} {
		t.Run(name, func(t *testing.T) {
			w := written{base: 10, last: 12, records: make([]Record, 2)}
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.RecordBatches = w.frame(body)
			_, _, err := records(&rp, 10)
			require.ErrorIs(t, err, ErrMalformed)
			require.ErrorContains(t, err, "10 to 12")
		})
	}
	for name, spoil := range map[string]func(frame []byte){
		"a negative number of records": func(f []byte) { binary.BigEndian.PutUint32(f[atCount:], 1<<31) },
		"an end before the beginning":  func(f []byte) { binary.BigEndian.PutUint32(f[atLastDelta:], 1<<31) },
		"a negative offset":            func(f []byte) { f[0] = 0x80 },
		"an offset out of numbers":     func(f []byte) { binary.BigEndian.PutUint64(f, 1<<63-1) },
		"an unknown compression":       func(f []byte) { f[atAttributes+1] |= 7 },
		"compression of nothing":       func(f []byte) { f[atAttributes+1] |= 1 },
	} {
		t.Run(name, func(t *testing.T) {
			rp := answerOf(written{base: 10, last: 12, records: []Record{{Offset: 10}}})
			spoil(rp.RecordBatches)
			sign(rp.RecordBatches)
			_, _, err := records(rp, 10)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
	w := marker(10, 1, false)
	w.records[0].Key = w.records[0].Key[:3]
	_, _, err := records(answerOf(w), 10)
	require.ErrorIs(t, err, ErrMalformed)
	w.records[0].Key = nil
	rp := answerOf(w)
	rp.RecordBatches = rp.RecordBatches[:len(rp.RecordBatches)-1]
	binary.BigEndian.PutUint32(rp.RecordBatches[atLength:], uint32(len(rp.RecordBatches)-atLength-4))
	sign(rp.RecordBatches)
	_, _, err = records(rp, 10)
	require.ErrorIs(t, err, ErrMalformed)
}

// FuzzTake: whatever a broker sends makes an error or records in order, and what franz-go reads too is the same.
func FuzzTake(f *testing.F) {
	f.Add(answerOf(written{base: 10, last: 12, records: []Record{{Offset: 10, Key: []byte("k")}, {Offset: 12, Headers: []kgo.RecordHeader{{Key: "h"}}}}}).RecordBatches, int64(11), int64(-1))
	f.Add(answerOf(written{base: 0, last: 0, codec: kgo.GzipCompression(), records: []Record{{Value: []byte("v")}}}).RecordBatches, int64(0), int64(-1))
	f.Add(answerOf(written{base: 0, last: 0, producer: 1, attributes: transactional, records: []Record{{}}}, marker(1, 1, false), marker(2, 1, true)).RecordBatches, int64(0), int64(1))
	f.Fuzz(func(t *testing.T, in []byte, wanted, aborted int64) {
		// Without a right checksum hardly anything would be looked at.
		for rest := in; len(rest) >= headerSize; {
			size := int64(int32(binary.BigEndian.Uint32(rest[atLength:]))) + atLength + 4
			if size < headerSize || size > int64(len(rest)) {
				break
			}
			sign(rest[:size])
			rest = rest[size:]
		}
		wanted = max(wanted, 0)
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.RecordBatches = in
		if aborted >= 0 {
			a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			a.ProducerID, a.FirstOffset = aborted, wanted
			rp.AbortedTransactions = append(rp.AbortedTransactions, a)
		}
		got, next, err := records(&rp, wanted)
		require.GreaterOrEqual(t, next, wanted)
		if err != nil {
			require.True(t, errors.Is(err, ErrMalformed) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat), err)
			return
		}
		for i, r := range got {
			require.GreaterOrEqual(t, r.Offset, wanted)
			require.Less(t, r.Offset, next)
			if i > 0 && got[i-1].Offset >= r.Offset {
				return // batches that lie in each other are for the reader of their partition, which passes over what it has
			}
		}
		theirs, theirNext, theirErr := byKgo(&rp, wanted)
		if theirErr != nil || theirNext != next {
			return // it is less strict with some, and ends before others
		}
		require.Empty(t, cmp.Diff(theirs, got, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Millis" }, cmp.Ignore())))
	})
}
