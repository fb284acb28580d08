// Package segment is the file format of keyed state: immutable, sorted runs of rows.
//
// A row's key is its key group (2 bytes), state number (2 bytes), for states with namespaces the namespace (8 bytes), and the rest,
// which belongs to the state; all big-endian, so that rows sort by group, state and namespace. A row is a value or a tombstone, which
// hides the row in older segments. A value may carry a stamp, a number whose meaning is the state's. A [Drop] hides a
// whole namespace of a state in older segments, and never in its own.
//
// Rows are kept in blocks of at most 16 KiB (one row alone may be larger), each with a CRC32C of its own. A large segment is a bbolt
// file with one pair per block, a Bloom filter and a header; a small one is header and blocks in one piece, to travel by value.
//
// Damage is never taken for data, and hides none: a block tells the first key of the one behind it, so that a walk that leaves one out
// and a search that ends in the wrong one are noticed, whatever the pages of bbolt around it say; those are read here, and trusted in
// nothing. Who meets damage gets [ErrCorrupt] with the name of the file. Files of the first two formats, which do not tell the next
// block, keep that promise for damage within blocks.
//
// A [Segment] may be used from several goroutines, a [Cursor], [Merge] or [Writer] from one at a time.
package segment
