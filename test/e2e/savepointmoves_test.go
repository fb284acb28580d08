package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// A savepoint needs nothing but its own folder, wherever that is moved to, and no job that starts from it owns it. Two that are asked for
// at once while checkpoints run are both taken.
func TestSavepointIsMoved(t *testing.T) {
	t.Parallel()
	const keys = 2000
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 2})
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	write := func(length int) {
		var batch []*kgo.Record
		for n := range keys {
			value := strings.Repeat(string(rune('a'+n%26)), length)
			batch = append(batch, &kgo.Record{Topic: in, Partition: int32(n % partitions), Key: fmt.Appendf(nil, "key-%d", n), Value: []byte(value)})
		}
		c.Produce(batch...)
	}
	id := c.Submit([]string{"-p", "2", "--name", "first"}, "--shape", "hoard", "--in", in, "--out", out)
	write(200) // kept
	harness.Eventually(t, 30*time.Second, "the state to be in a checkpoint", func() error {
		if n := totalBytes(t, c, id); n < keys*100 {
			return fmt.Errorf("the last checkpoint has %d bytes", n)
		}
		return nil
	})
	dir := filepath.Join(c.Dir, "there")
	paths := make(chan harness.Result, 2)
	for range cap(paths) {
		go func() { paths <- c.Weir("savepoint", id, "--dir", "file://"+dir) }()
	}
	var savepoint string
	for range cap(paths) {
		r := <-paths
		require.Zero(t, r.Code, r.Stderr)
		savepoint = strings.TrimPrefix(strings.TrimSpace(r.Stdout), "file://")
	}
	c.MustWeir("cancel", id)
	files := func(folder string) []string {
		found, err := filepath.Glob(filepath.Join(folder, "files", "*"))
		require.NoError(t, err)
		for i := range found {
			found[i] = filepath.Base(found[i])
		}
		return found
	}
	kept := files(savepoint)
	require.NotEmpty(t, kept)
	moved := filepath.Join(c.Dir, "elsewhere", "renamed")
	require.NoError(t, os.MkdirAll(filepath.Dir(moved), 0o755))
	require.NoError(t, os.Rename(savepoint, moved))
	require.NoError(t, os.RemoveAll(dir))

	next := c.Submit([]string{"-p", "3", "--name", "next", "--from", "file://" + moved}, "--shape", "hoard", "--in", in, "--out", out)
	write(10) // shorter than what is kept, so passed on
	c.AwaitCommitted(out, keys, 30*time.Second)
	require.Equal(t, kept, files(moved))
	c.MustWeir("cancel", next)
	require.Equal(t, kept, files(moved), "no job owns it")

	// Without the operator that the state is of, and with another one.
	other := []string{"submit", "-p", "1", "--name", "other", "--from", "file://" + moved}
	job := []string{c.Binaries.Job, "--", "--brokers", c.Broker.Addr(), "--shape", "count", "--in", in, "--out", c.Topic(partitions, nil)}
	r := c.Weir(append(other, job...)...)
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "hoard")
	require.Contains(t, r.Stderr, "--allow-dropped-state")
	id = strings.TrimSpace(c.MustWeir(append(append(other, "--allow-dropped-state"), job...)...))
	c.WaitState(id, "RUNNING", 30*time.Second)
}
