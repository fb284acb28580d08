package filesink_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	filesink "github.com/weir-stream/weir/sinks/file"
	"github.com/weir-stream/weir/sinks/sinktest"
	"github.com/weir-stream/weir/sources"
)

func deployment(attempt uint64, restored []*snapshotv1.Committable, former ...operator.FormerAttempt) sinktest.Deployment {
	return sinktest.Deployment{
		Job: "job", Attempt: attempt, Parallelism: 1, Guarantee: graph.ExactlyOnce, Checkpoints: sinktest.Checkpoints(), Restored: restored, Former: former,
	}
}

func start[T any](t *testing.T, sink sinks.Sink[T], d sinktest.Deployment) *sinktest.Attempt[T] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return sinktest.Start[T](t, ctx, sink, d)
}

func lines(dir string, opts ...filesink.Option) sinks.Sink[int] {
	return filesink.New(filesink.Directory(dir), filesink.JSONLines[int](), opts...)
}

func relative(t *testing.T, dir string) (out []string) {
	t.Helper()
	files, err := finished(dir)
	require.NoError(t, err)
	for _, f := range files {
		rel, err := filepath.Rel(dir, f)
		require.NoError(t, err)
		out = append(out, rel)
	}
	return out
}

func TestNamesTellWhereAFileIsFrom(t *testing.T) {
	dir := t.TempDir()
	d := deployment(7, nil)
	d.Parallelism = 2
	start[int](t, lines(dir), d)
	d.Subtask = 1
	a := start[int](t, lines(dir), d)
	for n := range uint64(2) {
		a.Write(1)
		a.Barrier(n + 1)
	}
	require.Empty(t, relative(t, dir))
	require.Len(t, unfinished(t, dir), 2)
	a.Commit(2)
	names := relative(t, dir)
	require.Len(t, names, 2)
	require.Regexp(t, `^out-[0-9a-f]{16}-7-1-000001-000\.jsonl$`, names[0])
	require.Regexp(t, `^out-[0-9a-f]{16}-7-1-000002-000\.jsonl$`, names[1])
}

func TestPartitions(t *testing.T) {
	dir := t.TempDir()
	byHundred := func(v int, at time.Time) string {
		return fmt.Sprintf("date=%s/hundred=%d", at.Format(time.DateOnly), v/100)
	}
	sink := filesink.NewPartitioned(filesink.Directory(dir), filesink.JSONLines[int](), byHundred, filesink.MaxOpen(2))
	a := start[int](t, sink, deployment(1, nil))
	at := time.Date(2026, 1, 31, 4, 0, 0, 0, time.UTC).UnixMilli()
	for _, v := range []int{1, 101, 2, 201, 3, 102} { // 201 ends the file of 101, 102 that of 201
		require.NoError(t, a.Collector.Collect(v, at))
		require.LessOrEqual(t, countSuffix(unfinished(t, dir), ".inprogress"), 2, "files open at a time")
	}
	a.Barrier(1)
	_, err := os.Stat(filepath.Join(dir, "date=2026-01-31"))
	require.ErrorIs(t, err, os.ErrNotExist)
	a.Commit(1)
	got := map[string]string{}
	for _, name := range relative(t, dir) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		got[filepath.Dir(name)] += strings.ReplaceAll(string(data), "\n", " ")
	}
	require.Equal(t, map[string]string{
		"date=2026-01-31/hundred=0": "1 2 3 ", "date=2026-01-31/hundred=1": "101 102 ", "date=2026-01-31/hundred=2": "201 ",
	}, got)
}

func countSuffix(names []string, suffix string) (n int) {
	for _, name := range names {
		if strings.HasSuffix(name, suffix) {
			n++
		}
	}
	return n
}

func TestPartitionsOutsideAreRefused(t *testing.T) {
	for _, bad := range []string{"../x", "/x", "a//b", ".weir/x", "a/_b", `a\b`, "."} {
		sink := filesink.NewPartitioned(filesink.Directory(t.TempDir()), filesink.JSONLines[int](), func(int, time.Time) string { return bad })
		a := start[int](t, sink, deployment(1, nil))
		err := a.Collector.Collect(1, operator.NoTimestamp)
		require.ErrorContains(t, err, fmt.Sprintf("partition %q", bad))
		require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
	}
}

func TestFilesAreEndedBySizeAndAge(t *testing.T) {
	dir := t.TempDir()
	a := start[int](t, lines(dir, filesink.MaxBytes(10)), deployment(1, nil))
	for n := range 10 {
		a.Write(1000 + n) // 5 bytes each
	}
	a.Barrier(1)
	a.Commit(1)
	require.Len(t, relative(t, dir), 5)

	dir = t.TempDir()
	a = start[int](t, lines(dir, filesink.MaxAge(time.Nanosecond)), deployment(1, nil))
	a.Write(1, 2, 3)
	a.Barrier(1)
	a.Commit(1)
	require.Len(t, relative(t, dir), 3)
}

// Whoever reads finished files may move them away at once; a commit that is repeated after that is no loss.
func TestFinishedFilesMayBeTakenAway(t *testing.T) {
	dir := t.TempDir()
	first := start[int](t, lines(dir), deployment(1, nil))
	var restored []*snapshotv1.Committable
	for n := range uint64(3) {
		first.Write(int(n))
		restored = first.Barrier(n + 1)
		first.Commit(n + 1)
	}
	for _, name := range relative(t, dir) {
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
	}
	start[int](t, lines(dir), deployment(2, restored, sinktest.Former(1)))
	start[int](t, lines(dir), deployment(3, restored, sinktest.Former(1), sinktest.Former(2)))
	require.Empty(t, relative(t, dir))
}

func TestPendingFileThatIsGoneIsALoss(t *testing.T) {
	dir := t.TempDir()
	first := start[int](t, lines(dir), deployment(1, nil))
	first.Write(1, 2)
	first.Barrier(1)
	first.Write(3)
	restored := first.Barrier(2)
	pending, err := filepath.Glob(filepath.Join(dir, ".weir", "*", "1.0", "000001-000.pending"))
	require.NoError(t, err)
	require.Len(t, pending, 1)
	require.NoError(t, os.Remove(pending[0]))

	second, err := sinktest.Open[int](t, t.Context(), lines(dir), deployment(2, nil))
	require.NoError(t, err)
	for _, err := range []error{first.TryCommit(2), second.Instance.(operator.Committer).RecoverCommit(t.Context(), restored)} {
		var lost *sinks.LostError
		require.ErrorAs(t, err, &lost)
		require.EqualValues(t, 1, lost.Checkpoint)
		require.EqualValues(t, 2, lost.Records())
		require.Equal(t, operator.ClassDataLoss, operator.ClassOf(err))
	}
}

// A loss that is accepted is dropped, and the rest asked for again. Dies the worker before the log has the loss, its successor finds it again.
func TestLossIsFoundAgainAfterTheRestIsCommitted(t *testing.T) {
	dir := t.TempDir()
	first := start[int](t, lines(dir), deployment(1, nil))
	var restored []*snapshotv1.Committable
	for n := range uint64(4) {
		first.Write(int(n))
		restored = first.Barrier(n + 1)
	}
	require.NoError(t, os.Remove(pendingOf(t, dir, "1.0", 2)))
	first.Drop()

	for attempt := uint64(2); attempt < 4; attempt++ {
		a, err := sinktest.Open[int](t, t.Context(), lines(dir), deployment(attempt, nil))
		require.NoError(t, err)
		c := a.Instance.(operator.Committer)
		err = c.RecoverCommit(t.Context(), restored)
		told := sinks.LossesOf(err)
		require.Len(t, told, 1, "attempt %d: %v", attempt, err)
		require.EqualValues(t, 2, told[0].GetCheckpoint())
		require.NoError(t, c.RecoverCommit(t.Context(), append(restored[:1:1], restored[2:]...)))
		require.Len(t, relative(t, dir), 3)
		a.Drop()
	}
}

// However often a job restarts, the number of files and directories below .weir stays, and what they prove is proven still.
func TestNothingIsLeftOfFormerAttemptsButTheirMarks(t *testing.T) {
	dir := t.TempDir()
	var restored, savepoint []*snapshotv1.Committable
	var former []operator.FormerAttempt
	for attempt := uint64(1); attempt <= 6; attempt++ {
		a := start[int](t, lines(dir), deployment(attempt, restored, former...))
		former = append(former, sinktest.Former(attempt))
		a.Write(int(attempt))
		restored = a.Barrier(attempt)
		a.Commit(attempt)
		if attempt == 1 {
			savepoint = restored
		}
		a.Drop()
		names, err := filepath.Glob(filepath.Join(dir, ".weir", "*", "*"))
		require.NoError(t, err)
		require.Len(t, names, 3, "fence, opened and committed/: %v", names)
		names, err = filepath.Glob(filepath.Join(dir, ".weir", "*", "committed", "*"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(names), 3)
	}
	for _, name := range relative(t, dir) {
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
	}
	start[int](t, lines(dir), deployment(7, savepoint, former...))
	require.Empty(t, relative(t, dir))
}

// pendingOf returns the pending file of a transaction.
func pendingOf(t *testing.T, dir, writer string, sequence int) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, ".weir", "*", writer, fmt.Sprintf("%06d-000.pending", sequence)))
	require.NoError(t, err)
	require.Len(t, names, 1)
	return names[0]
}

func TestWriterThatWasReplacedIsToldSo(t *testing.T) {
	dir := t.TempDir()
	first := start[int](t, lines(dir), deployment(1, nil))
	first.Write(1)
	first.Barrier(1)
	start[int](t, lines(dir), deployment(2, nil, sinktest.Former(1)))
	require.ErrorContains(t, first.Collector.Collect(2, operator.NoTimestamp), "a later attempt of the job has taken over: attempt 2")
	done := make(chan error, 1)
	first.Notify(1, done)
	time.AfterFunc(time.Second, first.Drop) // it would be repeated for a minute
	err := <-done
	require.ErrorContains(t, err, "taken over")
	require.NotErrorIs(t, err, sinks.ErrLost)
	require.Empty(t, unfinished(t, dir))
}

func TestFilesOfOthersAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	other := deployment(1, nil)
	other.Job = "other"
	b := start[int](t, lines(dir), other)
	b.Write(1)
	b.Barrier(1)
	b.Write(2)
	stray := filepath.Join(dir, ".weir", "something")
	require.NoError(t, os.WriteFile(stray, nil, 0o644))
	start[int](t, lines(dir), deployment(9, nil, sinktest.Former(1)))
	require.Len(t, unfinished(t, dir), 2)
	require.FileExists(t, stray)
}

func TestCompression(t *testing.T) {
	for extension, c := range map[string]struct {
		format filesink.Format[int]
		open   func(io.Reader) (io.Reader, error)
	}{
		".jsonl.gz":  {filesink.Gzip(filesink.JSONLines[int]()), func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
		".jsonl.zst": {filesink.Zstd(filesink.JSONLines[int]()), func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) }},
	} {
		t.Run(extension, func(t *testing.T) {
			dir := t.TempDir()
			a := start[int](t, filesink.New(filesink.Directory(dir), c.format), deployment(1, nil))
			a.Write(1, 2)
			a.Barrier(1)
			a.Commit(1)
			names := relative(t, dir)
			require.Len(t, names, 1)
			require.True(t, strings.HasSuffix(names[0], extension))
			f, err := os.Open(filepath.Join(dir, names[0]))
			require.NoError(t, err)
			defer f.Close()
			r, err := c.open(f)
			require.NoError(t, err)
			data, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Equal(t, "1\n2\n", string(data))
		})
	}
}

// A record that cannot be written, or a file that cannot be made durable, fails the task, never only the checkpoint.
func TestFullDiskFailsTheTask(t *testing.T) {
	dir := t.TempDir()
	for name, full := range map[string]*fullPlace{"write": {Place: filesink.Directory(dir), write: true}, "seal": {Place: filesink.Directory(dir)}} {
		t.Run(name, func(t *testing.T) {
			a := start[int](t, filesink.New[int](full, filesink.JSONLines[int]()), deployment(1, nil))
			a.Write(1)
			_, err := a.TryBarrier(1)
			require.ErrorIs(t, err, syscall.ENOSPC)
			require.Equal(t, operator.ClassRestart, operator.ClassOf(err))
			require.Empty(t, relative(t, dir))
			a.Close()
			require.Empty(t, unfinished(t, dir))
		})
	}
}

type fullPlace struct {
	filesink.Place
	write bool
}

func (p *fullPlace) Open(ctx context.Context) (filesink.Store, error) {
	s, err := p.Place.Open(ctx)
	return fullStore{s, p.write}, err
}

type fullStore struct {
	filesink.Store
	write bool
}

func (s fullStore) Create(ctx context.Context, name string) (filesink.File, error) {
	f, err := s.Store.Create(ctx, name)
	return fullFile{f, s.write}, err
}

type fullFile struct {
	filesink.File
	write bool
}

func (f fullFile) Write(b []byte) (int, error) {
	if f.write {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(b)
}

func (f fullFile) Seal(context.Context) error { return syscall.ENOSPC }

func TestSettingsAreChecked(t *testing.T) {
	for want, sink := range map[string]sinks.Sink[int]{
		"absolute path": lines("relative"),
		"no place":      filesink.New[int](nil, filesink.JSONLines[int]()),
		"MaxBytes":      lines("/x", filesink.MaxBytes(0)),
		"MaxAge":        lines("/x", filesink.MaxAge(-1)),
		"MaxOpen":       lines("/x", filesink.MaxOpen(0)),
		"Deadline":      lines("/x", filesink.Deadline(0)),
	} {
		require.ErrorContains(t, sink.Validate(sources.JobSettings{}), want)
	}
	require.NoError(t, lines("/x").Validate(sources.JobSettings{}))
	require.Equal(t, graph.AtLeastOnce, lines("/x", filesink.Guarantee(graph.AtLeastOnce)).Guarantee())
}
