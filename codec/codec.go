// Package codec turns values into bytes and back: records between tasks, keys, and state on disk.
//
// Two kinds exist. A [Codec] is for values; fields may be added to a type over time where its encoding describes itself. A [Key]
// is canonical (equal keys have equal bytes) and order-preserving (bytes sort as keys do), and its bytes decide which subtask owns
// the key, so it can never change.
//
// All codecs are stateless and safe for concurrent use.
package codec

// Codec encodes and decodes values of type T.
type Codec[T any] interface {
	// ID names the encoding, for example "int64" or "msgpack". It is stored with the state and must not change.
	ID() string
	// Fingerprint identifies the schema of T; 0 when the encoding has none. Two schemas that can read each other's values have
	// equal fingerprints. A codec whose schemas may differ and still be read also has a method Schema; see [Schema].
	Fingerprint() uint64
	// Append appends the encoding of v to dst and returns the extended slice.
	Append(dst []byte, v T) ([]byte, error)
	// Decode decodes exactly src. The result must not alias src.
	Decode(src []byte) (T, error)
}

// Key is a canonical, order-preserving codec of keys. Its encoding is not self-delimiting: callers that concatenate keys escape or
// prefix them.
type Key[K comparable] interface {
	// ID names the encoding; it is part of the job's fingerprint.
	ID() string
	// Append appends the encoding of k to dst and returns the extended slice.
	Append(dst []byte, k K) []byte
	// Decode decodes exactly src.
	Decode(src []byte) (K, error)
}
