package segment_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend/segment"
)

// pageSize is that of the files that this machine writes.
var pageSize = os.Getpagesize()

// specimen is a file to be damaged, and what it holds.
type specimen struct {
	content []byte
	rows    []row
	drops   []segment.Drop
	path    string // of what is damaged
}

// specimens are a file of some leaves below a branch, one with keys that are cut, and one of a single leaf.
func specimens(t testing.TB) (all []specimen) {
	var many, long []row
	for i := range 480 {
		many = append(many, row{key: key(i/160, 1, fmt.Sprintf("%08d", i)), value: strings.Repeat("v", i%60)})
	}
	for i := range 12 {
		long = append(long, row{key: key(0, 1, strings.Repeat("long", 300)+fmt.Sprintf("%04d", i)), value: strings.Repeat("v", i%4*500)})
	}
	drops := []segment.Drop{{State: 2, Namespace: 7}}
	for i, rows := range [][]row{many, long, many[:60]} {
		path := filepath.Join(t.TempDir(), fmt.Sprint(i))
		build(t, path, 0, rows, drops...)
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		all = append(all, specimen{content, rows, drops, path})
	}
	return all
}

// judge reads a file that was damaged in every way and requires the right rows or an error that names it. It reports whether anything was
// noticed.
func (s specimen) judge(t testing.TB, content []byte, what string, step int) (noticed bool) {
	require.NoError(t, os.WriteFile(s.path, content, 0o644))
	return s.judgeFile(t, len(content), what, step)
}

func (s specimen) judgeFile(t testing.TB, size int, what string, step int) (noticed bool) {
	path := s.path
	bad := func(err error) bool {
		if err == nil {
			return false
		}
		require.ErrorIs(t, err, segment.ErrCorrupt, what)
		require.ErrorContains(t, err, path, what)
		return true
	}
	opened, err := segment.Open(path, uint64(size))
	if bad(err) {
		return true
	}
	defer func() { require.NoError(t, opened.Close()) }()
	require.Equal(t, uint64(len(s.rows)), opened.Entries(), what)
	require.Equal(t, s.drops, opened.Drops(), what)
	c, err := opened.NewCursor()
	if bad(err) {
		return true
	}
	n := 0
	for c.Seek(nil); c.Valid(); c.Next() {
		require.True(t, n < len(s.rows) && s.rows[n].is(c), "%s: row %d", what, n)
		n++
	}
	if !bad(c.Err()) {
		require.Equal(t, len(s.rows), n, "%s: rows are missing", what)
	} else {
		noticed = true
	}
	require.NoError(t, c.Close())
	noticed = s.lookUp(t, opened, bad, what, step) || noticed
	for i := range 3 {
		err := opened.Sample(func(n int) int { return n * i / 3 }, func(key []byte, tombstone bool, _ int64) {
			at, ok := slices.BinarySearchFunc(s.rows, string(key), func(r row, key string) int { return strings.Compare(r.key, key) })
			require.True(t, ok && s.rows[at].tombstone == tombstone, "%s: %q was never written", what, key)
		})
		noticed = bad(err) || noticed
	}
	if bad(opened.Prepare()) {
		return true
	}
	return s.lookUp(t, opened, bad, what, step) || noticed
}

// lookUp looks rows up.
func (s specimen) lookUp(t testing.TB, opened *segment.Segment, bad func(error) bool, what string, step int) (noticed bool) {
	c, err := opened.NewCursor()
	require.NoError(t, err)
	for i := 0; i < len(s.rows); i += step {
		r := s.rows[i]
		require.True(t, opened.MayContain(segment.Hash([]byte(r.key))), "%s: %q is hidden by the filter", what, r.key)
		if c.Seek([]byte(r.key)); bad(c.Err()) {
			noticed = true
			require.NoError(t, c.Close())
			c, err = opened.NewCursor()
			require.NoError(t, err)
			continue
		}
		require.True(t, c.Valid(), "%s: %q is hidden", what, r.key)
		require.True(t, r.is(c), "%s: %q", what, r.key)
		if found := c.Find([]byte(r.key)); bad(c.Err()) {
			noticed = true
			require.NoError(t, c.Close())
			c, err = opened.NewCursor()
			require.NoError(t, err)
			continue
		} else {
			require.True(t, found && r.is(c), "%s: %q is hidden from who looks for it alone", what, r.key)
		}
		q := question(r.key)
		if err := new(segment.Asker).Ask(everyGroup(opened), q); err != nil {
			require.ErrorIs(t, err, segment.ErrCorrupt, what)
			noticed = true
			continue
		}
		require.True(t, !q[0].Found || r.answers(q[0]), "%s: %q has another answer", what, r.key)
	}
	require.NoError(t, c.Close())
	return noticed
}

func question(key string) []segment.Question {
	return []segment.Question{{Row: []byte(key), Hash: segment.Hash([]byte(key))}}
}

func everyGroup(s *segment.Segment) []segment.Source {
	return []segment.Source{{Segment: s, Groups: keygroup.Range{Last: 1<<16 - 1}}}
}

func (r row) answers(q segment.Question) bool {
	return r.key == string(q.Row) && r.value == string(q.Value) && r.tombstone == q.Tombstone
}

func (r row) is(c *segment.Cursor) bool {
	return r.key == string(c.Key()) && r.value == string(c.Value()) && r.tombstone == c.Tombstone()
}

func (s specimen) pages() int { return len(s.content) / pageSize }

func (s specimen) page(content []byte, i int) []byte { return content[i*pageSize : (i+1)*pageSize] }

// What bbolt puts around the blocks is damaged byte by byte, every other one where there is much of it, and one in 199 of the others.
func TestNoDamagedByteMakesWrongRows(t *testing.T) {
	for n, s := range specimens(t) {
		require.False(t, s.judge(t, s.content, "sound", 1))
		f, err := os.OpenFile(s.path, os.O_RDWR, 0)
		require.NoError(t, err)
		write := func(at int, b byte) {
			_, err := f.WriteAt([]byte{b}, int64(at))
			require.NoError(t, err)
		}
		noticed := 0
		try := func(at int, mask byte) {
			write(at, s.content[at]^mask)
			if s.judgeFile(t, len(s.content), fmt.Sprintf("file %d, byte %d ^ %x", n, at, mask), 37) {
				noticed++
			}
			write(at, s.content[at])
		}
		for p := range s.pages() {
			count := int(binary.NativeEndian.Uint16(s.page(s.content, p)[10:]))
			structure := min(pageSize, 16+16*count)
			if p < 2 {
				structure = 80
			}
			for at := range pageSize {
				switch {
				case at < 256 && p >= 2 && count <= 2: // the buckets, and where the header and the filter are
					for bit := range 8 {
						try(p*pageSize+at, 1<<bit)
					}
				case at < structure && (p < 2 || at%2 == p%2):
					try(p*pageSize+at, 1<<(at%8))
				case at%199 == 0:
					try(p*pageSize+at, 0xff)
				}
			}
		}
		require.Positive(t, noticed)
		require.NoError(t, f.Close())
	}
}

// Pages take the place of others, number and all, as when a disk writes or reads the wrong one; and whatever a branch points at, it leads
// to no wrong rows.
func TestNoPageInTheWrongPlaceMakesWrongRows(t *testing.T) {
	for n, s := range specimens(t) {
		for from := range s.pages() {
			for to := range s.pages() {
				if from == to {
					continue
				}
				content := bytes.Clone(s.content)
				page := s.page(content, to)
				copy(page, s.page(s.content, from))
				s.judge(t, content, fmt.Sprintf("file %d, page %d as it is at %d", n, from, to), 31)
				binary.NativeEndian.PutUint64(page, uint64(to))
				s.judge(t, content, fmt.Sprintf("file %d, page %d at %d", n, from, to), 31)
			}
		}
		branches := 0
		for p := 2; p < s.pages(); p++ {
			page := s.page(s.content, p)
			if binary.NativeEndian.Uint16(page[8:]) != 1 {
				continue
			}
			branches++
			for e := range int(binary.NativeEndian.Uint16(page[10:])) {
				for to := range s.pages() { // itself too
					content := bytes.Clone(s.content)
					binary.NativeEndian.PutUint64(s.page(content, p)[16+16*e+8:], uint64(to))
					s.judge(t, content, fmt.Sprintf("file %d, element %d of page %d leads to %d", n, e, p, to), 31)
				}
			}
		}
		require.True(t, n > 0 || branches > 0, "the first file is to have a branch")
	}
}

func TestAFileThatIsCutOrExtendedMakesNoWrongRows(t *testing.T) {
	for n, s := range specimens(t) {
		for size := 0; size < len(s.content); size += 777 {
			s.judge(t, s.content[:size], fmt.Sprintf("file %d, cut to %d", n, size), 31)
		}
		longer := append(bytes.Clone(s.content), make([]byte, pageSize+1)...)
		require.False(t, s.judge(t, longer, "extended", 31), "the rows are all there")
		path := filepath.Join(t.TempDir(), "s")
		require.NoError(t, os.WriteFile(path, longer, 0o644))
		_, err := segment.Open(path, uint64(len(s.content)))
		require.ErrorIs(t, err, segment.ErrCorrupt)
	}
}

// A file that is cut short while it is open ends the walk and not the process, also when that stands in the middle of a block.
func TestAFileThatIsCutWhileItIsOpen(t *testing.T) {
	s := specimens(t)[0]
	path := filepath.Join(t.TempDir(), "s")
	require.NoError(t, os.WriteFile(path, s.content, 0o644))
	opened, err := segment.Open(path, uint64(len(s.content)))
	require.NoError(t, err)
	defer func() { require.NoError(t, opened.Close()) }()
	walk, err := opened.NewCursor()
	require.NoError(t, err)
	walk.Seek(nil)
	require.True(t, walk.Valid())
	merge, err := segment.NewMerge([]segment.Source{{Segment: opened, Groups: keygroup.Range{Last: 2}}}, true)
	require.NoError(t, err)
	merge.Seek([]byte(s.rows[100].key))
	require.True(t, merge.Valid())
	require.NoError(t, os.Truncate(path, 0))
	for _, r := range s.rows {
		require.True(t, opened.MayContain(segment.Hash([]byte(r.key))), "nothing is certain")
	}
	n := 0
	for ; walk.Valid(); walk.Next() {
		require.True(t, s.rows[n].is(walk), "row %d", n)
		n++
	}
	require.Greater(t, n, 1, "the rest of the block had been read")
	for n = 100; merge.Valid(); merge.Next() {
		require.Equal(t, s.rows[n].key, string(merge.Key()))
		require.Equal(t, s.rows[n].value, string(merge.Value()))
		n++
	}
	require.Greater(t, n, 101)
	c, err := opened.NewCursor()
	require.ErrorIs(t, err, segment.ErrCorrupt)
	require.Nil(t, c)
	for _, err := range []error{walk.Err(), merge.Err()} {
		require.ErrorIs(t, err, segment.ErrCorrupt)
		require.ErrorContains(t, err, path)
	}
	walk.Seek([]byte(s.rows[300].key))
	require.False(t, walk.Valid())
	require.NoError(t, walk.Close())
	require.NoError(t, merge.Close())
}

// FuzzDamagedFile damages a file at up to eight places. Each edit is 6 bytes: the place, what to do, and with what.
func FuzzDamagedFile(f *testing.F) {
	all := specimens(f)
	for i := range all {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte{0, 0, 0, 24, 0, 1})
		f.Add(uint8(i), []byte{0, 0, 0x30, 8, 1, 3, 0, 0, 0x30, 10, 1, 255})
		f.Add(uint8(i), []byte{0, 0, 0x10, 0, 2, 4})
		f.Add(uint8(i), []byte{0, 0, 0x35, 0, 3, 0})
	}
	f.Fuzz(func(t *testing.T, which uint8, edits []byte) {
		s := all[int(which)%len(all)]
		content := bytes.Clone(s.content)
		for n := 0; n < 8 && len(edits) >= 6 && len(content) > pageSize; n++ {
			at := int(binary.BigEndian.Uint32(edits)) % len(content)
			how, with := edits[4], edits[5]
			edits = edits[6:]
			switch how % 4 {
			case 0:
				content[at] ^= with
			case 1:
				content[at] = with
			case 2: // a page in the place of another
				pages := len(content) / pageSize
				to := at / pageSize % pages
				copy(content[to*pageSize:], s.page(content, int(with)%pages))
				binary.NativeEndian.PutUint64(content[to*pageSize:], uint64(to))
			case 3:
				content = content[:at]
			}
		}
		s.judge(t, content, "fuzzed", 97)
	})
}
