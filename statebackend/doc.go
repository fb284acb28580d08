// Package statebackend keeps the state of one operator instance: typed tables in memory over immutable segments on checkpoint storage.
//
// A [Backend] holds the states that an operator declares: [Value], [Map], [List], [Panes] and [Timers]. It and its states belong to one
// goroutine. [Backend.Freeze], at a barrier, only sets aside what has changed; [Frozen.Write] encodes and uploads it on another
// goroutine while the state changes further.
//
// # Tables
//
// The rows of a table lie in an arena of fixed pieces, where an index of hashes finds them by number; only maps within a key have Go
// maps. With keys and values without pointers the collector has nothing to do with either, and no row is allocated by itself. Records
// that come in batches announce their keys ([Backend.Expect]), so that the rows of many are loaded from memory at the same time.
//
// # Versions
//
// Time is divided into epochs by Freeze. An entry of a table is a version made in one epoch. A write in the same epoch changes the
// version; a write in a later epoch makes a new version, so that a frozen one never changes while it may still be written. Once the
// checkpoint of its epoch is completed and nothing writes it any more, a version is used again: changed in place when it is its row's
// latest, else given to another row. Values are immutable once they are set; accumulators of Panes, which are changed in place, are
// copied with the version.
//
// # Snapshots
//
// A snapshot is a list of segments, oldest first: those of the last checkpoint known to be completed, and a delta with all changes
// since. A tombstone is written only if those segments may hold the key, so what is born and gone between two checkpoints is never
// written. When the list gets long its newer part is merged; when deltas are about to outweigh the base, or most rows are of no use any
// more, all of it is.
//
// # Restore
//
// Open does not read the rows: a key that a table does not have is looked for in the segments, newest first, through Bloom filters. A
// loader fills the tables meanwhile by way of Config.Post; it replaces neither an entry nor a tombstone. When it is done, a missing
// key is answered without looking. Of Panes the list of panes is read at Open and each pane's accumulators on demand; of Timers the
// earliest time of each key group, and the timers when they are due.
package statebackend
