// Package filestamp tells whether files have changed since they were read.
package filestamp

import (
	"io/fs"
	"os"
)

// Stamp describes files as they were at one moment.
type Stamp []fs.FileInfo

// Of describes files, following links. An empty name stands for no file, and one that cannot be seen counts as absent. Take the stamp
// before reading: what changes while it is read then shows in the next one.
func Of(names ...string) Stamp {
	out := make(Stamp, len(names))
	for i, n := range names {
		if n == "" {
			continue
		}
		if info, err := os.Stat(n); err == nil {
			out[i] = info
		}
	}
	return out
}

// Equal reports whether b describes the same content, as far as time of change, size and identity of the files tell.
func (a Stamp) Equal(b Stamp) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if (x == nil) != (y == nil) {
			return false
		}
		if x != nil && (!x.ModTime().Equal(y.ModTime()) || x.Size() != y.Size() || !os.SameFile(x, y)) {
			return false
		}
	}
	return true
}
