package blob

import (
	"context"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// sortAsNames puts the entries of a directory in the order of the object names below them, where a directory's name ends with a slash.
func sortAsNames(entries []fs.DirEntry) {
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(nameOf(a), nameOf(b)) })
}

func nameOf(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}

// contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context //nolint:containedctx // io.Reader takes none, and the reader lives for one call
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
