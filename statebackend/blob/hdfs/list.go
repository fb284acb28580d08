package hdfs

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/weir-stream/weir/statebackend/blob"
)

// lister walks the directories of one List.
type lister struct {
	b      *bucket
	ctx    context.Context //nolint:containedctx // it lives for one call
	prefix string
	yield  func(blob.Attributes, error) bool
}

// read returns the entries of a directory, whose name is empty or ends with a slash; none when there is no such directory.
func (l *lister) read(dir string) (entries []os.FileInfo, err error) {
	err = l.b.do(l.ctx, func(s *session) (err error) {
		entries, err = s.ReadDir(path.Join(l.b.root, escape(dir)))
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

// place is an object or a folder in a directory; a folder's name ends with a slash, so that they sort as the objects below them.
type place struct {
	name    string
	object  os.FileInfo // nil for a folder
	entries []os.FileInfo
}

// walk yields the objects below dir and reports whether to go on.
func (l *lister) walk(dir string, entries []os.FileInfo) (bool, error) {
	var places []place
	for _, e := range entries {
		name := dir + unescape(e.Name())
		if !e.IsDir() || strings.HasPrefix(e.Name(), tempPrefix) || !strings.HasPrefix(name, l.prefix) && !strings.HasPrefix(l.prefix, name) {
			continue
		}
		below, err := l.read(name + "/")
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(below, func(e os.FileInfo) bool { return e.Name() == object })
		if i >= 0 && strings.HasPrefix(name, l.prefix) {
			places = append(places, place{name: name, object: below[i]})
		}
		folder := name + "/"
		if len(below) > 1 || len(below) == 1 && i < 0 {
			if strings.HasPrefix(folder, l.prefix) || strings.HasPrefix(l.prefix, folder) {
				places = append(places, place{name: folder, entries: below})
			}
		}
	}
	slices.SortFunc(places, func(a, b place) int { return strings.Compare(a.name, b.name) })
	for _, p := range places {
		if p.object == nil {
			if more, err := l.walk(p.name, p.entries); !more || err != nil {
				return false, err
			}
			continue
		}
		if !l.yield(blob.Attributes{Name: p.name, Size: p.object.Size(), ModTime: p.object.ModTime()}, nil) {
			return false, nil
		}
	}
	return true, nil
}
