package segment

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Versions of the format. The second one has rows with stamps. In the third, which is the one that is written, each block tells the first
// key of the block behind it, so that no damage hides rows, and the filter is another one.
const (
	FormatVersion = 1
	StampedFormat = 2
	BoundedFormat = 3
)

// Readable reports whether this package reads a version of the format.
func Readable(version uint32) bool { return version >= FormatVersion && version <= BoundedFormat }

// NoStamp is the stamp of a row that has none.
const NoStamp int64 = math.MinInt64

// Sizes of the fixed parts of a row's key, in bytes.
const (
	PrefixSize    = 4 // key group and state
	NamespaceSize = 8
)

// AppendPrefix appends the start of a row's key.
func AppendPrefix(dst []byte, group int, state uint16) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(group))
	return binary.BigEndian.AppendUint16(dst, state)
}

// AppendNamespace appends a namespace in a form that sorts as the number does.
func AppendNamespace(dst []byte, namespace int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(namespace)^1<<63)
}

// Group returns the key group of a row.
func Group(key []byte) int { return int(binary.BigEndian.Uint16(key)) }

// State returns the state number of a row.
func State(key []byte) uint16 { return binary.BigEndian.Uint16(key[2:]) }

// Namespace returns the namespace of a row of a state that has namespaces.
func Namespace(key []byte) int64 {
	return int64(binary.BigEndian.Uint64(key[PrefixSize:]) ^ 1<<63)
}

// Hash is the hash of a key, or of the start of one, in Bloom filters.
func Hash(key []byte) uint64 { return xxhash.Sum64(key) }

// Drop hides the rows of one namespace of a state in older segments.
type Drop struct {
	State     uint16
	Namespace int64
}
