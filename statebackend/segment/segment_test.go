package segment_test

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type row struct {
	key, value string
	tombstone  bool
}

func wholeKey(key []byte) int { return len(key) }

func key(group int, state uint16, rest string) string {
	return string(append(segment.AppendPrefix(nil, group, state), rest...))
}

func namespaceKey(group int, state uint16, namespace int64, rest string) string {
	return string(append(segment.AppendNamespace(segment.AppendPrefix(nil, group, state), namespace), rest...))
}

func sorted(rows []row) []row {
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.key, b.key) })
	return slices.CompactFunc(rows, func(a, b row) bool { return a.key == b.key })
}

func build(t require.TestingT, path string, inline int, rows []row, drops ...segment.Drop) segment.Result {
	w := segment.NewWriter(path, inline, wholeKey)
	for _, r := range rows {
		require.NoError(t, w.Add([]byte(r.key), []byte(r.value), r.tombstone))
	}
	result, err := w.Finish(drops)
	require.NoError(t, err)
	require.Equal(t, uint64(len(rows)), result.Entries)
	return result
}

func open(t require.TestingT, r segment.Result) *segment.Segment {
	s, err := segment.OpenInline(r.Inline)
	if r.Path != "" {
		s, err = segment.Open(r.Path, r.Size)
	}
	require.NoError(t, err)
	return s
}

// read reads the rows with a cursor, and requires that a merge shows the same.
func read(t require.TestingT, s *segment.Segment) (rows []row) {
	c, err := s.NewCursor()
	require.NoError(t, err)
	for c.Seek(nil); c.Valid(); c.Next() {
		rows = append(rows, row{key: string(c.Key()), value: string(c.Value()), tombstone: c.Tombstone()})
	}
	require.NoError(t, c.Err())
	require.NoError(t, c.Close())
	m, err := segment.NewMerge([]segment.Source{{Segment: s, Groups: keygroup.Range{Last: 1<<16 - 1}}}, true)
	require.NoError(t, err)
	n := 0
	for m.Seek(nil); m.Valid(); m.Next() {
		require.True(t, n < len(rows) && rows[n] == row{key: string(m.Key()), value: string(m.Value()), tombstone: m.Tombstone()})
		n++
	}
	require.NoError(t, m.Err())
	require.Len(t, rows, n)
	require.NoError(t, m.Close())
	return rows
}

func genRows(t *rapid.T, name string) []row {
	long := strings.Repeat("long", 300)
	gen := rapid.Custom(func(t *rapid.T) row {
		r := row{
			key: key(rapid.IntRange(0, 4).Draw(t, "group"), uint16(rapid.IntRange(1, 2).Draw(t, "state")),
				rapid.SampledFrom([]string{"", "12345678", long, long + "x"}).Draw(t, "start")+rapid.StringN(0, 3, 3).Draw(t, "key")),
			value:     strings.Repeat(rapid.SampledFrom([]string{"u", "v", "w"}).Draw(t, "letter"), rapid.SampledFrom([]int{0, 1, 1000, 20000}).Draw(t, "size")),
			tombstone: rapid.IntRange(0, 4).Draw(t, "tombstone") == 0,
		}
		if r.tombstone {
			r.value = ""
		}
		return r
	})
	return sorted(rapid.SliceOfN(gen, 0, 40).Draw(t, name))
}

func TestSegmentsGiveBackTheirRows(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		rows := genRows(t, "rows")
		n++
		result := build(t, filepath.Join(dir, fmt.Sprint(n)), rapid.SampledFrom([]int{0, 500, 1 << 30}).Draw(t, "inline"), rows)
		s := open(t, result)
		defer func() { require.NoError(t, s.Close()) }()
		if rapid.Bool().Draw(t, "prepared") {
			require.NoError(t, s.Prepare())
		}
		require.True(t, slices.Equal(rows, read(t, s)))
		var asker segment.Asker
		c, err := s.NewCursor()
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		for _, r := range rows {
			require.True(t, s.MayContain(segment.Hash([]byte(r.key))))
			for _, at := range []string{r.key, r.key + "\x00", r.key[:len(r.key)-1]} {
				i, _ := slices.BinarySearchFunc(rows, at, func(r row, at string) int { return cmp.Compare(r.key, at) })
				c.Seek([]byte(at))
				require.Equal(t, i < len(rows), c.Valid())
				if c.Valid() {
					require.Equal(t, rows[i].key, string(c.Key()))
				}
				there := i < len(rows) && rows[i].key == at
				require.Equal(t, there, c.Find([]byte(at)))
				require.True(t, !there || rows[i].is(c))
				if there {
					if c.Next(); i+1 < len(rows) {
						require.Equal(t, rows[i+1].key, string(c.Key()))
					}
				}
				q := question(at)
				require.NoError(t, asker.Ask(everyGroup(s), q))
				require.True(t, !q[0].Found || there && rows[i].answers(q[0]))
			}
		}
	})
}

func TestMergeShowsTheNewestRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sources []segment.Source
		want := map[string]row{}
		for i := range rapid.IntRange(1, 4).Draw(t, "segments") {
			var rows []row
			for range rapid.IntRange(0, 8).Draw(t, "rows") {
				r := row{
					key: namespaceKey(rapid.IntRange(0, 3).Draw(t, "group"), 1, rapid.Int64Range(-1, 1).Draw(t, "namespace"),
						rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")),
					value: fmt.Sprint(i), tombstone: rapid.IntRange(0, 3).Draw(t, "tombstone") == 0,
				}
				if r.tombstone {
					r.value = ""
				}
				rows = append(rows, r)
			}
			rows = sorted(rows)
			var drops []segment.Drop
			if rapid.IntRange(0, 2).Draw(t, "drops") == 0 {
				drops = append(drops, segment.Drop{State: 1, Namespace: rapid.Int64Range(-1, 1).Draw(t, "dropped")})
			}
			clip := keygroup.Range{First: rapid.IntRange(0, 3).Draw(t, "first"), Last: 3}
			clip.Last = rapid.IntRange(clip.First, 3).Draw(t, "last")
			sources = append(sources, segment.Source{Segment: open(t, build(t, "", 1<<20, rows, drops...)), Groups: clip})
			for k := range want {
				if len(drops) > 0 && clip.Contains(segment.Group([]byte(k))) && segment.Namespace([]byte(k)) == drops[0].Namespace {
					delete(want, k)
				}
			}
			for _, r := range rows {
				if clip.Contains(segment.Group([]byte(r.key))) {
					want[r.key] = r
				}
			}
		}
		tombstones := rapid.Bool().Draw(t, "with tombstones")
		var wanted []row
		for _, r := range want {
			if !r.tombstone || tombstones {
				wanted = append(wanted, r)
			}
		}
		wanted = sorted(wanted)
		m, err := segment.NewMerge(sources, tombstones)
		require.NoError(t, err)
		defer func() { require.NoError(t, m.Close()) }()
		start := []byte(namespaceKey(rapid.IntRange(0, 2).Draw(t, "from"), 1, 0, ""))
		wanted = slices.DeleteFunc(wanted, func(r row) bool { return r.key < string(start) })
		var got []row
		for m.Seek(start); m.Valid(); m.Next() {
			got = append(got, row{key: string(m.Key()), value: string(m.Value()), tombstone: m.Tombstone()})
		}
		require.NoError(t, m.Err())
		require.True(t, slices.Equal(wanted, got), "got %q, not %q", got, wanted)
	})
}

func TestBloomFiltersRuleOutMostAbsentKeys(t *testing.T) {
	var rows []row
	for i := range 20000 {
		rows = append(rows, row{key: key(0, 1, fmt.Sprintf("%08d", i))})
	}
	s := open(t, build(t, filepath.Join(t.TempDir(), "s"), 0, rows))
	defer func() { require.NoError(t, s.Close()) }()
	wrong := 0
	for i := range 20000 {
		if s.MayContain(segment.Hash([]byte(key(0, 1, fmt.Sprintf("x%08d", i))))) {
			wrong++
		}
	}
	require.Less(t, wrong, 600) // 3 %
}

func TestRowsOutOfOrderAreRefused(t *testing.T) {
	w := segment.NewWriter("", 1<<20, wholeKey)
	require.NoError(t, w.Add([]byte(key(1, 1, "b")), nil, false))
	require.Error(t, w.Add([]byte(key(1, 1, "b")), nil, false))
	require.Error(t, w.Add([]byte(key(1, 1, "a")), nil, false))
}

func TestDamageIsNoticed(t *testing.T) {
	rows := []row{}
	for i := range 2000 {
		rows = append(rows, row{key: key(0, 1, fmt.Sprintf("%08d", i)), value: "some value"})
	}
	path := filepath.Join(t.TempDir(), "s")
	result := build(t, path, 0, rows)
	_, err := segment.Open(path, result.Size+1)
	require.ErrorIs(t, err, segment.ErrCorrupt)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	i := bytes.Index(content, []byte("some value"))
	content[i] ^= 1
	require.NoError(t, os.WriteFile(path, content, 0o644))
	s, err := segment.Open(path, result.Size)
	require.NoError(t, err)
	c, err := s.NewCursor()
	require.NoError(t, err)
	for c.Seek(nil); c.Valid(); c.Next() {
	}
	require.ErrorIs(t, c.Err(), segment.ErrCorrupt)
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
}

func TestAnAbortedSegmentLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	w := segment.NewWriter(path, 0, wholeKey)
	for i := range 2000 {
		require.NoError(t, w.Add([]byte(key(0, 1, fmt.Sprintf("%08d", i))), []byte("some value"), false))
	}
	require.FileExists(t, path)
	require.NoError(t, w.Abort())
	require.NoFileExists(t, path)
}

// goldenRows are what the golden files of each format hold.
func goldenRows() (rows []row, drops []segment.Drop) {
	for i := range 300 {
		r := row{key: key(i/100, 1, fmt.Sprintf("key-%04d", i)), value: strings.Repeat("value ", i%20)}
		if i%7 == 0 {
			r.tombstone, r.value = true, ""
		}
		rows = append(rows, r)
	}
	return rows, []segment.Drop{{State: 2, Namespace: -60000}, {State: 2, Namespace: 60000}}
}

// Every format must stay readable; the files were written by the version that introduced it. Those of the second and the third have stamps.
func TestGoldenFiles(t *testing.T) {
	rows, drops := goldenRows()
	for format := 1; format <= segment.BoundedFormat; format++ {
		file, inline := filepath.Join("testdata", fmt.Sprintf("format%d.segment", format)), filepath.Join("testdata", fmt.Sprintf("format%d.inline", format))
		info, err := os.Stat(file)
		require.NoError(t, err)
		content, err := os.ReadFile(inline)
		require.NoError(t, err)
		require.EqualValues(t, format, content[len("weirseg")])
		for _, r := range []segment.Result{{Path: file, Size: uint64(info.Size())}, {Inline: content}} {
			s := open(t, r)
			require.Equal(t, rows, read(t, s))
			require.Equal(t, drops, s.Drops())
			require.Equal(t, uint64(len(rows)), s.Entries())
			require.True(t, s.HasDrop(drops[1]))
			c, err := s.NewCursor()
			require.NoError(t, err)
			for i, r := range rows {
				require.True(t, s.MayContain(segment.Hash([]byte(r.key))))
				c.Seek([]byte(r.key))
				require.True(t, c.Valid())
				require.Equal(t, r.key, string(c.Key()))
				want := segment.NoStamp
				if format > 1 && i%3 == 0 && !r.tombstone {
					want = int64(i) - 5
				}
				require.Equal(t, want, c.Stamp())
			}
			require.NoError(t, c.Close())
			require.NoError(t, s.Close())
		}
	}
}

func TestAnUnknownFormatIsRefused(t *testing.T) {
	content := bytes.Clone(build(t, "", 1<<20, nil).Inline)
	content[len("weirseg")] = segment.BoundedFormat + 1
	_, err := segment.OpenInline(content)
	require.ErrorContains(t, err, "format 4")
}

// stamped builds a segment whose every third row has a stamp.
func stamped(t require.TestingT, path string, inline int, rows []row) segment.Result {
	w := segment.NewWriter(path, inline, wholeKey)
	for i, r := range rows {
		stamp := segment.NoStamp
		if i%3 == 0 {
			stamp = int64(i) - 5
		}
		require.NoError(t, w.AddStamped([]byte(r.key), []byte(r.value), stamp))
	}
	result, err := w.Finish(nil)
	require.NoError(t, err)
	return result
}

// Rows with stamps and without lie side by side.
func TestStamps(t *testing.T) {
	var rows []row
	for i := range 3000 {
		rows = append(rows, row{key: key(i/1000, 1, fmt.Sprintf("%08d", i)), value: strings.Repeat("v", i%100)})
	}
	for _, inline := range []int{0, 1 << 20} {
		result := stamped(t, filepath.Join(t.TempDir(), "s"), inline, rows)
		require.Equal(t, uint32(segment.BoundedFormat), result.Format)
		s := open(t, result)
		require.Equal(t, rows, read(t, s))
		m, err := segment.NewMerge([]segment.Source{{Segment: s, Groups: keygroup.Range{Last: 10}}}, true)
		require.NoError(t, err)
		c, err := s.NewCursor()
		require.NoError(t, err)
		m.Seek(nil)
		for i, r := range rows {
			want := segment.NoStamp
			if i%3 == 0 {
				want = int64(i) - 5
			}
			c.Seek([]byte(r.key))
			require.Equal(t, want, c.Stamp())
			require.Equal(t, want, m.Stamp())
			m.Next()
		}
		require.NoError(t, m.Close())
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
	}
}

func FuzzOpenInline(f *testing.F) {
	rows, drops := goldenRows()
	f.Add(build(f, "", 1<<20, rows[:20], drops...).Inline)
	f.Add(build(f, "", 1<<20, nil).Inline)
	f.Add(stamped(f, "", 1<<20, rows[:20]).Inline)
	f.Fuzz(func(t *testing.T, content []byte) {
		s, err := segment.OpenInline(content)
		if err != nil {
			return
		}
		c, err := s.NewCursor()
		require.NoError(t, err)
		last := ""
		for c.Seek(nil); c.Valid(); c.Next() {
			last = string(c.Key())
		}
		c.Seek([]byte(last))
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
	})
}

// Of many questions at once, which are about three segments of like keys, all get the answer of the newest one that has the row, but for those
// that a filter leads astray or whose key begins as a page does.
func TestManyQuestionsAreAnswered(t *testing.T) {
	var sources []segment.Source
	want := map[string]row{}
	for n := range 3 {
		var rows []row
		for i := range 5000 {
			if i%3 >= n {
				r := row{key: key(i%7, 1, fmt.Sprintf("user-%05d", i*i)), value: fmt.Sprint(n, i), tombstone: n == 2 && i%2 == 0}
				if r.tombstone {
					r.value = ""
				}
				rows = append(rows, r)
				want[r.key] = r
			}
		}
		s := open(t, build(t, filepath.Join(t.TempDir(), "segment"), 0, sorted(rows)))
		defer func() { require.NoError(t, s.Close()) }()
		require.NoError(t, s.Prepare())
		sources = append(sources, everyGroup(s)...)
	}
	var questions []segment.Question
	for k := range want {
		questions = append(questions, question(k)...)
		questions = append(questions, question(k+"0")...)
	}
	var asker segment.Asker
	found := 0
	for some := range slices.Chunk(questions, 32) {
		require.NoError(t, asker.Ask(sources, some))
		for _, q := range some {
			r, there := want[string(q.Row)]
			require.True(t, !q.Found || there && r.answers(q), "%q", q.Row)
			if q.Found {
				found++
			}
		}
	}
	require.Greater(t, found, len(want)*9/10)
}
