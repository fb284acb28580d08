package filesink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// marks holds up to which sequence everything of a writer is committed, by "attempt.subtask".
type marks map[string]uint64

// formerPrefix begins the name of a file with the marks of many former writers, so that they do not take a file each.
const formerPrefix = "former-"

func marksDir(sink string) string { return sinkDir(sink) + "committed/" }

func (w writer) formerName() string {
	return fmt.Sprintf("%s%s%d.%d", marksDir(w.Sink), formerPrefix, w.Attempt, w.Subtask)
}

func (m marks) add(writer string, through uint64) { m[writer] = max(m[writer], through) }

func (m marks) encode() []byte {
	var b bytes.Buffer
	for _, w := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s %d\n", w, m[w])
	}
	return b.Bytes()
}

// read adds the marks of a file; one that is gone is in a later file.
func (m marks) read(ctx context.Context, store Store, name string) error {
	data, err := store.Read(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		w, through, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(through, 10, 64)
		if err != nil {
			return fmt.Errorf("file %s: %w", name, err)
		}
		m.add(w, n)
	}
	return nil
}

// parseMark reads the name of a file with marks; former tells that it has those of many.
func parseMark(sink, name string) (w writer, former, ok bool) {
	rest, ok := strings.CutPrefix(name, marksDir(sink))
	if !ok {
		return w, false, false
	}
	rest, former = strings.CutPrefix(rest, formerPrefix)
	attempt, subtask, ok := strings.Cut(rest, ".")
	a, aerr := strconv.ParseUint(attempt, 10, 64)
	s, serr := strconv.Atoi(subtask)
	return writer{sink, a, s}, former, ok && aerr == nil && serr == nil
}

// formerly returns the mark of a writer whose own file may have been gathered with others.
func formerly(ctx context.Context, store Store, w writer) (uint64, error) {
	all := marks{}
	for name, err := range store.List(ctx, marksDir(w.Sink)) {
		if err != nil {
			return 0, err
		}
		if _, former, ok := parseMark(w.Sink, name); ok && former {
			if err := all.read(ctx, store, name); err != nil {
				return 0, err
			}
		}
	}
	return all[fmt.Sprintf("%d.%d", w.Attempt, w.Subtask)], nil
}

// gather puts the marks in the named files, all of former writers, into one file of own's. It is written once, by one process, and before the
// others are removed: a mark is in some file at any time, also when a former attempt is at it still.
func gather(ctx context.Context, store Store, own writer, names []string) error {
	if len(names) < 2 || slices.Contains(names, own.formerName()) {
		return nil
	}
	all := marks{}
	for _, name := range names {
		w, former, _ := parseMark(own.Sink, name)
		if former {
			if err := all.read(ctx, store, name); err != nil {
				return err
			}
			continue
		}
		n, err := number(ctx, store, name)
		if err != nil {
			return err
		}
		all.add(fmt.Sprintf("%d.%d", w.Attempt, w.Subtask), n)
	}
	if err := store.Replace(ctx, own.formerName(), all.encode()); err != nil {
		return err
	}
	for _, name := range names {
		if err := store.Remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
