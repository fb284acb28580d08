package e2e_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/hdfstest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/internal/s3test"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/storage"
	"github.com/weir-stream/weir/taskmanager"
	"github.com/weir-stream/weir/test/harness"
)

func TestCheckpointsOnS3(t *testing.T) {
	s3test.Setenv(t)
	server := s3test.Start(t)
	testStorage(t, server.URL("weir", "&timeout=10s"))
}

func TestCheckpointsOnHDFS(t *testing.T) {
	t.Parallel()
	c := hdfstest.StartFor(t)
	testStorage(t, "hdfs://"+c.Address()+"/weir?timeout=10s")
}

// testStorage runs a job whose cluster has its storage at an address: binary, checkpoints, a TaskManager killed with kill -9, a savepoint,
// a job that goes on from it.
func testStorage(t *testing.T, address string) {
	const keys = 3000
	c := harness.Start(t, localcluster.Config{
		JobManagers: 1, TaskManagers: 2, Slots: 4,
		ConfigureJobManager:  func(cfg *jobmanager.Config) { cfg.Storage = address },
		ConfigureTaskManager: func(cfg *taskmanager.Config) { cfg.StorageURL = address },
		Environment:          func(string) []string { return s3test.Environ() },
	})
	in, out, further := c.Topic(partitions, nil), c.Topic(partitions, nil), c.Topic(partitions, nil)
	round := func() {
		records := make([]*kgo.Record, keys)
		for n := range records {
			records[n] = &kgo.Record{Topic: in, Partition: int32(n % partitions), Key: fmt.Appendf(nil, "key-%0100d", n), Value: []byte("x")}
		}
		c.Produce(records...)
	}
	// requireCounts waits until each key has its counts in a topic, each once.
	requireCounts := func(topic string, first, last int) {
		t.Helper()
		records := c.AwaitCommitted(topic, keys*(last-first+1), time.Minute)
		seen := make(map[string]int)
		for _, r := range records {
			seen[fmt.Sprintf("%s %d", r.Key, binary.BigEndian.Uint64(r.Value))]++
		}
		for n := range keys {
			for count := first; count <= last; count++ {
				if k := fmt.Sprintf("key-%0100d %d", n, count); seen[k] != 1 {
					t.Fatalf("%s is there %d times", k, seen[k])
				}
			}
		}
		if len(records) != keys*(last-first+1) {
			t.Fatalf("%d records are there", len(records))
		}
	}
	submit := func(out string, flags ...string) string {
		return c.Submit(append([]string{"-p", "2"}, flags...), "--shape", "count", "--in", in, "--out", out, "--interval", "500ms")
	}
	id := submit(out)
	round()
	requireCounts(out, 1, 1)
	victim, _ := busyTaskManager(t, c)
	require.NoError(t, victim.Kill())
	require.NoError(t, os.RemoveAll(filepath.Join(c.Dir, victim.ID, "segments"))) // its state comes from storage
	require.NoError(t, victim.Start())
	round()
	requireCounts(out, 1, 2)
	savepoint := strings.TrimSpace(c.MustWeir("savepoint", id))
	require.Contains(t, c.MustWeir("checkpoints", id), savepoint)
	c.MustWeir("cancel", id)
	require.Contains(t, c.MustWeir("state", "get", savepoint, "count", "count", fmt.Sprintf("key-%0100d", 7)), `"value":2`)
	submit(further, "--from", savepoint)
	round()
	requireCounts(further, 3, 3)

	requireFolders(t, address, savepoint)
	local, err := os.ReadDir(filepath.Join(c.Dir, "storage"))
	require.NoError(t, err)
	if len(local) > 0 {
		t.Errorf("%d files are on the local disk", len(local))
	}
}

// requireFolders looks for what belongs on storage, with a client of its own.
func requireFolders(t *testing.T, address, savepoint string) {
	t.Helper()
	b, err := storage.OpenURL(t.Context(), address)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	found := map[string]int{}
	for a, err := range b.List(t.Context(), "") {
		require.NoError(t, err)
		parts := strings.Split(a.Name, "/")
		if parts[1] == "jobs" {
			parts[1] += "/" + parts[3]
		}
		found[parts[1]]++
	}
	for _, folder := range []string{"artifacts", "jobs/checkpoints", "jobs/state", "savepoints", "probe"} {
		require.Positive(t, found[folder], "%s: %v", folder, found)
	}
	sp, err := storage.OpenURL(t.Context(), savepoint)
	require.NoError(t, err)
	defer func() { require.NoError(t, sp.Close()) }()
	_, err = sp.Stat(t.Context(), "metadata")
	require.NoError(t, err)
	_, err = sp.Stat(t.Context(), "none")
	require.ErrorIs(t, err, blob.ErrNotExist)
}
