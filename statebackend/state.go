package statebackend

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weir-stream/weir/codec"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend/segment"
)

// Kinds of states, as in the schema.
const (
	kindValue = "value"
	kindMap   = "map"
	kindList  = "list"
	kindPanes = "window"
	kindTimer = "timer"
)

// declaration is a declared state and its number in segments, which Open assigns.
type declaration struct {
	name, kind, keyCodec, valueCodec string
	fingerprint                      uint64
	valueSchema                      string
	expiry                           *expiry  // nil for a state that never had a time to live
	former                           []string // names that older versions gave it

	id    uint16
	state state

	// Encoded size of rows, for estimates. measuring is held by who changes them.
	measuring      sync.Mutex
	rows, rowBytes atomic.Int64
}

// measure takes note of the size of encoded rows. The mean is of late rows rather than of all. Any goroutine may call it.
func (d *declaration) measure(rows, size int) {
	d.measuring.Lock()
	defer d.measuring.Unlock()
	const window = 1 << 16
	n, bytes := d.rows.Load(), d.rowBytes.Load()
	if n >= window {
		n, bytes = n/2, bytes/2
	}
	d.rows.Store(n + int64(rows))
	d.rowBytes.Store(bytes + int64(size))
}

func (d *declaration) schema() *snapshotv1.StateSchema {
	return &snapshotv1.StateSchema{
		StateId: uint32(d.id), Name: d.name, Kind: d.kind, KeyCodec: d.keyCodec, ValueCodec: d.valueCodec,
		SchemaFingerprint: d.fingerprint, ValueSchema: d.valueSchema,
	}
}

// filterLen returns the length of the part of a row's key that is in Bloom filters: all of it, but for maps without the map key.
func (d *declaration) filterLen(row []byte) int {
	if d.kind != kindMap {
		return len(row)
	}
	n, err := codec.EscapedLen(row[segment.PrefixSize:])
	if err != nil {
		return len(row)
	}
	return segment.PrefixSize + n
}

// state is a declared state as the backend sees it. changes are read on another goroutine, everything else runs on the backend's.
type state interface {
	// restore reads what must be known at once of the restored segments.
	restore() error
	// freeze ends the current epoch.
	freeze()
	// changes returns what changed after epoch from.
	changes(from uint64) changes
	// release drops epochs that a completed checkpoint covers.
	release()
	// newBatch returns a batch for restored rows.
	newBatch() batch
	// loaded tells that every restored row is in memory.
	loaded()
	// count returns the number of rows that there are; it is exact once every restored row is in memory.
	count() int
	// held returns the number of entries in memory, tombstones included.
	held() int
	// evict removes at most want entries that were last changed in an epoch up to upTo, looking at no more than visits, and returns the
	// number removed.
	evict(want int, upTo uint64, visits int) int
	// bytes estimates the size in memory, given the mean size of an encoded row.
	bytes(perRow int64) int64
}

// batch decodes restored rows on the loader's goroutine and adds them to the state on the backend's.
type batch interface {
	decode(row, value []byte, at stamp) error
	apply()
}

// changes are the rows of a state that a snapshot writes.
type changes interface {
	// collect gathers the versions, the newest of each row first, and returns their number. appendTo is called for them in order.
	collect() int
	// appendTo appends the key of version i's row, and if asked for the value of one that is alive. It returns the length of the key.
	appendTo(dst []byte, i int, value bool) (_ []byte, key int, _ fate, _ error)
	appendValue(dst []byte, i int) ([]byte, error)
	stamp(i int) stamp
	// drops returns the namespaces that the segments before may hold and that are gone.
	drops() []int64
}

// rowPrefix appends the start of the row of a key: the prefix, then the key's encoding.
func (b *Backend[K]) rowPrefix(dst []byte, d *declaration, k K) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = b.key.Append(dst, k)
	group := keygroup.Of(dst[start+segment.PrefixSize:], b.core.cfg.MaxParallelism)
	segment.AppendPrefix(dst[:start], group, d.id)
	return dst
}

// namespaceRow appends the row of a key in a namespace.
func (b *Backend[K]) namespaceRow(dst []byte, d *declaration, namespace int64, k K) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = segment.AppendNamespace(dst, namespace)
	dst = b.key.Append(dst, k)
	group := keygroup.Of(dst[start+segment.PrefixSize+segment.NamespaceSize:], b.core.cfg.MaxParallelism)
	segment.AppendPrefix(dst[:start], group, d.id)
	return dst
}

// cutNamespaceRow decodes the namespace and the key of a row.
func (b *Backend[K]) cutNamespaceRow(row []byte) (namespace int64, k K, err error) {
	const start = segment.PrefixSize + segment.NamespaceSize
	if len(row) < start {
		return 0, k, fmt.Errorf("%w: row without a namespace", segment.ErrCorrupt)
	}
	k, err = b.key.Decode(row[start:])
	return segment.Namespace(row), k, err
}

// newKeyTable returns a table of one row per key and declares its state.
func newKeyTable[K comparable, V any](
	b *Backend[K], d *declaration, encode func([]byte, V) ([]byte, error), decode func([]byte) (V, error),
) table[K, V] {
	return table[K, V]{
		core: b.core,
		rows: newRows[K, V](),
		appendRow: func(dst []byte, k K) []byte {
			return b.rowPrefix(dst, d, k)
		},
		decodeRow: func(row []byte) (K, error) { return b.key.Decode(row[segment.PrefixSize:]) },
		encode:    encode,
		decode:    func(value []byte, _ stamp) (V, error) { return decode(value) },
	}
}
