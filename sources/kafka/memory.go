package kafkasource

import (
	"sync/atomic"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordBytes is what the client keeps at most per record beyond its bytes: a pointer, and the record in a slice that may be twice as long
// as its batch.
const recordBytes = int64(unsafe.Sizeof(&kgo.Record{}) + 2*unsafe.Sizeof(kgo.Record{}))

// smallestFetch is the smallest fetch request, in bytes. A broker answers with one batch at least.
const smallestFetch = 16 << 10

// governor keeps the memory of fetched records within a bound. A fetch request limits compressed bytes, so it measures how much
// batches grow on arrival and shrinks the requests accordingly. It is called by the client's goroutines.
type governor struct {
	limit     int64 // bytes of all that is fetched and not yet emitted
	total     int32 // largest fetch request
	partition int32 // largest part of one partition in it
	brokers   atomic.Int32
	factor    atomic.Int64 // memory per fetched byte, in 1/16, slowly falling; 0 until something has arrived
	current   atomic.Int32
	client    atomic.Pointer[kgo.Client]
}

var _ kgo.HookFetchBatchRead = (*governor)(nil)

func newGovernor(limit int64, total, partition int32) *governor {
	g := &governor{limit: limit, total: total, partition: partition}
	g.brokers.Store(1)
	return g
}

// fetchBytes returns the size of a fetch request: one may be buffered for each broker while another is being emitted. The first ones
// are the smallest, since nobody knows how much they grow.
func (g *governor) fetchBytes() int32 {
	factor := g.factor.Load()
	if factor == 0 {
		return smallestFetch
	}
	room := g.limit / int64(g.brokers.Load()+1) * 16 / factor
	return int32(min(int64(g.total), max(smallestFetch, room)))
}

// partitionBytes goes down with fetchBytes.
func (g *governor) partitionBytes() int32 { return min(g.partition, g.fetchBytes()) }

// OnFetchBatchRead measures a batch.
func (g *governor) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	if m.CompressedBytes <= 0 || m.NumRecords <= 0 {
		return
	}
	seen := (int64(m.UncompressedBytes) + int64(m.NumRecords)*recordBytes) * 16 / int64(m.CompressedBytes)
	for {
		old := g.factor.Load()
		// Growth counts at once, shrinking by and by.
		next := max(16, seen, old-max(1, old/64))
		if g.factor.CompareAndSwap(old, next) {
			break
		}
	}
	if n := g.fetchBytes(); n != g.current.Swap(n) {
		if cl := g.client.Load(); cl != nil {
			cl.UpdateFetchMaxBytes(n, g.partitionBytes())
		}
	}
}
