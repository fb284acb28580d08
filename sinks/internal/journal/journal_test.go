package journal_test

import (
	"bytes"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/sinks/internal/journal"
)

func all(s journal.Sealed) (records [][]byte, err error) {
	err = journal.Read(s, func(r []byte) error {
		records = append(records, r)
		return nil
	})
	return records, err
}

func TestWhatIsAppendedIsRead(t *testing.T) {
	dir := t.TempDir()
	files := 0
	path := func() string {
		files++
		return filepath.Join(dir, strconv.Itoa(files))
	}
	w := journal.NewWriter(1000)
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(rt, "records")
		var want [][]byte
		size := 0
		for range n {
			r := bytes.Repeat([]byte{rapid.Byte().Draw(rt, "byte")}, rapid.SampledFrom([]int{0, 1, 5, 127, 128, 3000, 70000, 300000}).Draw(rt, "length"))
			require.NoError(rt, w.Append(path, r))
			want, size = append(want, r), size+len(r)
		}
		if rapid.IntRange(0, 5).Draw(rt, "discard") == 0 {
			require.NoError(rt, w.Discard())
			want, size, n = nil, 0, 0
		}
		s, err := w.Seal(path)
		require.NoError(rt, err)
		require.EqualValues(rt, n, s.Records)
		require.Equal(rt, size > 1000, s.Path != "" && s.Inline == nil)
		got, err := all(s)
		require.NoError(rt, err)
		require.Len(rt, got, len(want))
		for i := range want {
			require.True(rt, bytes.Equal(want[i], got[i]))
		}
		if s.Path == "" {
			return
		}
		content, err := os.ReadFile(s.Path)
		require.NoError(rt, err)
		require.EqualValues(rt, len(content), s.Size)
		require.Equal(rt, crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli)), s.CRC32C)
		require.NoError(rt, os.Remove(s.Path))
	})
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "what is discarded leaves no file")
}

func sealed(t require.TestingT, records ...string) journal.Sealed {
	w := journal.NewWriter(1 << 10)
	for _, r := range records {
		require.NoError(t, w.Append(nil, []byte(r)))
	}
	s, err := w.Seal(nil)
	require.NoError(t, err)
	return s
}

func TestEveryDamageIsFound(t *testing.T) {
	good := sealed(t, "one", "", "three")
	for i := range good.Inline {
		for bit := range 8 {
			bad := good
			bad.Inline = bytes.Clone(good.Inline)
			bad.Inline[i] ^= 1 << bit
			_, err := all(bad)
			require.Error(t, err, "byte %d", i)
		}
		bad := good
		bad.Inline = good.Inline[:i]
		_, err := all(bad)
		require.Error(t, err)
	}
	long := good
	long.Inline = append(bytes.Clone(good.Inline), 0)
	_, err := all(long)
	require.Error(t, err)
	newer := good
	newer.Inline = bytes.Clone(good.Inline)
	newer.Inline[7]++
	_, err = all(newer)
	require.ErrorIs(t, err, journal.ErrFormat)
	require.ErrorContains(t, err, "version 2")
}

func TestWriterTellsOfTheDisk(t *testing.T) {
	w := journal.NewWriter(10)
	nowhere := func() string { return filepath.Join(t.TempDir(), "none", "file") }
	require.NoError(t, w.Append(nowhere, []byte("a")))
	require.ErrorIs(t, w.Append(nowhere, make([]byte, 1<<20)), os.ErrNotExist)
}

func TestAppendAllocatesNothing(t *testing.T) {
	dir := t.TempDir()
	w := journal.NewWriter(1 << 10)
	path := func() string { return filepath.Join(dir, "f") }
	record := make([]byte, 200)
	require.NoError(t, w.Append(path, make([]byte, 100<<10)))
	require.Zero(t, testing.AllocsPerRun(5000, func() {
		if err := w.Append(path, record); err != nil {
			panic(err)
		}
	}))
	require.NoError(t, w.Discard())
}

func FuzzRead(f *testing.F) {
	f.Add(sealed(f).Inline)
	f.Add(sealed(f, "one", "", "three").Inline)
	f.Add([]byte("WEIRREC\x01\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, content []byte) {
		s := journal.Sealed{Inline: content, Size: uint64(len(content)), CRC32C: crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))}
		records, err := all(s)
		if err != nil {
			return
		}
		w := journal.NewWriter(len(content) + 100)
		for _, r := range records {
			require.NoError(t, w.Append(nil, r))
		}
		again, err := w.Seal(nil)
		require.NoError(t, err)
		require.EqualValues(t, len(records), again.Records)
	})
}
