// Package work is what the benchmarks compute: the layout of the records, and the functions that the Weir jobs and the hand-written
// programs share, so that they differ in nothing but what moves and keeps the records.
//
// A record of the binary inputs has 100 bytes, big endian: 0 key, 8 event time in milliseconds, 16 sequence number, 24 drop byte (0 to
// 9), the rest filler. Its timestamp in Kafka is its event time, which never goes back within a partition.
package work

import (
	"encoding/binary"

	"github.com/weir-stream/weir/codec/jsoncodec"
)

const (
	// Size is the size in bytes of a record of the binary inputs.
	Size = 100
	// WindowMillis is the size of the windows in milliseconds.
	WindowMillis = 10_000
	// Every is how many records of a key make one result of the exchange workload.
	Every = 10
)

// Fill writes the fields of a record.
func Fill(v []byte, key, millis, sequence uint64, drop byte) {
	binary.BigEndian.PutUint64(v, key)
	binary.BigEndian.PutUint64(v[8:], millis)
	binary.BigEndian.PutUint64(v[16:], sequence)
	v[24] = drop
}

// Key returns a record's key.
func Key(v []byte) uint64 { return binary.BigEndian.Uint64(v) }

// Millis returns a record's event time.
func Millis(v []byte) uint64 { return binary.BigEndian.Uint64(v[8:]) }

// Sequence returns a record's sequence number.
func Sequence(v []byte) uint64 { return binary.BigEndian.Uint64(v[16:]) }

// Kept reports whether the pass-through keeps a record; it drops one in ten.
func Kept(v []byte) bool { return v[24] != 0 }

// RowSize is the size in bytes of a Row.
const RowSize = 32

// Row appends a result of four numbers: key, window start, count and sum; or key, count, sequence number and 0.
func Row(to []byte, a, b, c, d uint64) []byte {
	to = binary.BigEndian.AppendUint64(to, a)
	to = binary.BigEndian.AppendUint64(to, b)
	to = binary.BigEndian.AppendUint64(to, c)
	return binary.BigEndian.AppendUint64(to, d)
}

// Bid is a bid in an auction, about 300 bytes of JSON.
type Bid struct {
	Auction  int64  `json:"auction"`
	Bidder   int64  `json:"bidder"`
	Price    int64  `json:"price"`
	Channel  string `json:"channel"`
	URL      string `json:"url"`
	DateTime int64  `json:"dateTime"`
	Extra    string `json:"extra"`
}

// Slim is what the projection keeps of a Bid.
type Slim struct {
	Auction  int64 `json:"auction"`
	Bidder   int64 `json:"bidder"`
	Cents    int64 `json:"cents"`
	DateTime int64 `json:"dateTime"`
}

// Project makes a Slim of a Bid.
func Project(b Bid) Slim { return Slim{b.Auction, b.Bidder, b.Price * 908 / 1000, b.DateTime} }

// ProjectJSON parses a bid, projects it and prints the result.
func ProjectJSON(v []byte) ([]byte, error) {
	b, err := jsoncodec.Decode[Bid](v)
	if err != nil {
		return nil, err
	}
	return jsoncodec.Encode(Project(b))
}
