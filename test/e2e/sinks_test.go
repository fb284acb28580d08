package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/internal/pgtest"
	"github.com/weir-stream/weir/test/harness"
)

// numbersOfTable returns how often each number is in the table.
func numbersOfTable(url string) (map[int]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "SELECT n, count(*) FROM numbers GROUP BY n")
	if err != nil {
		return nil, err
	}
	times := map[int]int{}
	var n, count int
	_, err = pgx.ForEachRow(rows, []any{&n, &count}, func() error {
		times[n] = count
		return nil
	})
	return times, err
}

// numbersOfFiles returns how often each number is in the finished files, which must be whole, and the files that are not finished.
func numbersOfFiles(dir string) (times map[int]int, unfinished []string, err error) {
	times = map[int]int{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.Contains(path, "/.weir/") {
			if strings.HasSuffix(path, ".pending") || strings.HasSuffix(path, ".inprogress") {
				unfinished = append(unfinished, path)
			}
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			var v struct{ N int }
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				return fmt.Errorf("file %s is not whole: %w", path, err)
			}
			if want := fmt.Sprintf("tens=%d", v.N%100/10); filepath.Base(filepath.Dir(path)) != want {
				return fmt.Errorf("%d is in %s, not in %s", v.N, path, want)
			}
			times[v.N]++
		}
		return nil
	})
	return times, unfinished, err
}

// exactly tells what is missing, repeated or foreign in the numbers from 1 to last.
func exactly(times map[int]int, last int) error {
	for n, count := range times {
		if count != 1 || n < 1 || n > last {
			return fmt.Errorf("%d is there %d times", n, count)
		}
	}
	if len(times) != last {
		return fmt.Errorf("%d of %d are there", len(times), last)
	}
	return nil
}

// One job writes to a table and to files while its processes and the database are killed; the table and the directory are the judges.
func TestTablesAndFilesGetEveryRecordOnce(t *testing.T) {
	t.Parallel()
	server := pgtest.StartFor(t, pgtest.Config{})
	url := server.Database(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE TABLE numbers (n int NOT NULL, key text NOT NULL)")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))

	c := harness.StartWithFaultPoints(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 2})
	in, dir := c.Topic(2, nil), filepath.Join(t.TempDir(), "numbers")
	id := c.Submit([]string{"-p", "2"}, "--shape", "tables", "--in", in, "--postgres", url, "--dir", dir, "--interval", "300ms")
	c.WaitState(id, "RUNNING", time.Minute)

	const chunk = 2000
	last := 0
	produce := func() {
		c.Produce(harness.Numbered(in, 2, last+1, last+chunk)...)
		last += chunk
	}
	kills := append([]fault{{"nothing", func(*testing.T, *harness.Cluster) {}}, {"workers with a complete checkpoint and no commit", killBeforeCommit}}, faults[:2]...)
	for _, f := range kills {
		produce()
		f.do(t, c)
		produce()
		awaitBoth(t, url, dir, last)
		t.Logf("%s: went on", f.name)
	}
	produce()
	require.NoError(t, server.Kill())
	produce()
	require.NoError(t, server.Restart(t.Context()))
	awaitBoth(t, url, dir, last)

	c.MustWeir("cancel", id)
	times, unfinished, err := numbersOfFiles(dir)
	require.NoError(t, err)
	require.NoError(t, exactly(times, last))
	require.Empty(t, unfinished)
	conn, err = pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	var open int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_xacts").Scan(&open))
	require.Zero(t, open, "prepared transactions are left")
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM weir.committed").Scan(&open))
	require.Less(t, open, 20, "bookkeeping grows")
}

// killBeforeCommit kills the workers when they hear of a complete checkpoint: what it lists has to be committed by those that follow.
func killBeforeCommit(t *testing.T, c *harness.Cluster) {
	t.Helper()
	for _, p := range c.TaskManagers() {
		c.Arm(p, faultpoint.NoticeReceived, "kill")
	}
	c.AwaitAnyFired(c.TaskManagers(), faultpoint.NoticeReceived, 30*time.Second)
	for _, p := range c.TaskManagers() {
		c.Disarm(p, faultpoint.NoticeReceived)
	}
}

// awaitBoth waits until the numbers up to last are in both places. Whatever is there is there once, at any time.
func awaitBoth(t *testing.T, url, dir string, last int) {
	t.Helper()
	harness.Eventually(t, 90*time.Second, "every number in the table and in the files", func() error {
		table, err := numbersOfTable(url)
		if err != nil {
			return err
		}
		files, _, err := numbersOfFiles(dir)
		if err != nil {
			return err
		}
		for _, times := range []map[int]int{table, files} {
			for n, count := range times {
				require.Equal(t, 1, count, "%d", n)
			}
		}
		if err := exactly(table, last); err != nil {
			return fmt.Errorf("in the table: %w", err)
		}
		if err := exactly(files, last); err != nil {
			return fmt.Errorf("in the files: %w", err)
		}
		return nil
	})
}
