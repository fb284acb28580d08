package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// Records deleted by retention before they were read: the job stops and says which, or goes on and counts them when told to.
func TestRecordsDeletedBeforeTheyWereRead(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 2})
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	args := []string{"--shape", "pass", "--in", in, "--out", out, "--max-restarts", "1"}
	c.Produce(harness.Numbered(in, 1, 0, 999)...)
	id := c.Submit(nil, args...)
	c.AwaitCommitted(out, 1000, 30*time.Second)
	savepoint := stopWithSavepoint(t, c, id)
	c.Produce(harness.Numbered(in, 1, 1000, 4999)...)
	require.NoError(t, c.Broker.DeleteRecords(t.Context(), in, 0, 3000))

	id = c.Submit([]string{"--detach", "--from", savepoint}, args...)
	v := c.WaitState(id, "FAILED", 40*time.Second)
	last := v.Failures[len(v.Failures)-1].Message
	for _, part := range []string{in, "1000", "3000", "2000"} {
		require.Contains(t, last, part)
	}
	require.Len(t, c.Committed(out), 1000)

	id = c.Submit([]string{"--from", savepoint}, append(args, "--skip-lost")...)
	harness.RequireNumbers(t, c.AwaitCommitted(out, 3000, 30*time.Second)[1000:], 3000, 4999)
	harness.Eventually(t, 10*time.Second, "the lost records to be counted", func() error {
		for _, task := range c.Job(id).Tasks {
			if task.Statistics["lostRecords"] == "2000" {
				return nil
			}
		}
		return &missingError{"lostRecords 2000", c.MustWeir("show", id, "-o", "json")}
	})
	c.MustWeir("cancel", id)
}

func stopWithSavepoint(t *testing.T, c *harness.Cluster, id string) string {
	t.Helper()
	c.MustWeir("stop", id, "--savepoint", "file://"+c.Dir+"/sp-"+id)
	path := c.Job(id).Savepoint
	require.NotEmpty(t, path)
	return path
}

// Partitions added while the job runs are found, read from their beginning, and survive a kill and a change of parallelism.
func TestPartitionsAddedWhileRunning(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 3})
	in, out := c.Topic(2, nil), c.Topic(1, nil)
	args := []string{"--shape", "pass", "--in", in, "--out", out, "--start", "latest", "--discovery", "2s"}
	c.Produce(harness.Numbered(in, 2, 9001, 9010)...) // before the start: not read
	id := c.Submit([]string{"-p", "2"}, args...)
	c.WaitState(id, "RUNNING", 20*time.Second)

	require.NoError(t, c.Broker.GrowTopic(t.Context(), in, 5))
	feed := func(first int) {
		var records []*kgo.Record
		for p := range 3 {
			for _, r := range harness.Numbered(in, 1, first+p*100, first+p*100+99) {
				r.Partition = int32(2 + p)
				records = append(records, r)
			}
		}
		c.Produce(records...)
	}
	feed(1)
	harness.RequireNumbers(t, c.AwaitCommitted(out, 300, 32*time.Second), 1, 300)

	_, tm, err := c.WorkerOf()
	require.NoError(t, err)
	require.NoError(t, tm.Kill())
	require.NoError(t, tm.Start())
	feed(301)
	harness.RequireNumbers(t, c.AwaitCommitted(out, 600, 40*time.Second), 1, 600)

	for i, p := range []string{"5", "1"} {
		savepoint := stopWithSavepoint(t, c, id)
		feed(601 + i*300)
		id = c.Submit([]string{"-p", p, "--from", savepoint}, args...)
		harness.RequireNumbers(t, c.AwaitCommitted(out, 900+i*300, 40*time.Second), 1, 900+i*300)
	}
	c.MustWeir("cancel", id)
}

// One record now and then, some just before a barrier, with a slow broker; then silence. No checkpoint fails and nothing is lost.
func TestQuietIntervals(t *testing.T) {
	t.Parallel()
	for _, client := range []string{"native", "confluent"} {
		t.Run(client, func(t *testing.T) {
			c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
			in, out := c.Topic(1, nil), c.Topic(1, nil)
			id := c.Submit(nil, "--shape", "pass", "--in", in, "--out", out, "--client", client)
			c.WaitState(id, "RUNNING", 20*time.Second)
			const n = 6
			for i := 1; i <= n; i++ {
				c.Produce(harness.Numbered(in, 1, i, i)...)
				time.Sleep(2500 * time.Millisecond) // the case is one record every 2.5 s
			}
			harness.RequireNumbers(t, c.AwaitCommitted(out, n, 10*time.Second), 1, n)
			end := c.EndOffsets(out)
			time.Sleep(5 * time.Second)
			require.Equal(t, end, c.EndOffsets(out), "the output grows in silence")
			require.NotContains(t, c.MustWeir("checkpoints", id), "failed")
			require.Equal(t, "0", orZero(c.Job(id).Restarts))
			c.MustWeir("cancel", id)
		})
	}
}

// Thousands of partitions make operator state larger than a message. The embedded broker serves them; a real one of this size does not
// have the memory.
func TestThousandsOfPartitions(t *testing.T) {
	t.Parallel()
	const partitions = 5000
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "in"), kfake.SeedTopics(1, "out"))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	c := harness.StartWith(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 2}, kafkatest.Existing(fake.ListenAddrs()[0]))
	args := []string{"--shape", "pass", "--in", "in", "--out", "out"}
	c.Produce(harness.Numbered("in", partitions, 1, partitions)...)
	id := c.Submit(nil, args...)
	harness.RequireNumbers(t, c.AwaitCommitted("out", partitions, 60*time.Second), 1, partitions)
	savepoint := stopWithSavepoint(t, c, id)
	c.Produce(harness.Numbered("in", partitions, partitions+1, 2*partitions)...)
	id = c.Submit([]string{"-p", "2", "--from", savepoint}, args...)
	harness.RequireNumbers(t, c.AwaitCommitted("out", 2*partitions, 60*time.Second), 1, 2*partitions)
	c.MustWeir("cancel", id)
}
