package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/internal/usage"
	"github.com/weir-stream/weir/test/harness"
)

// What a worker without state needs at most, as docs/guides/memory.md says: the process itself, what its buffers may hold, and garbage.
func workerNeeds(source int64) int64 {
	const (
		process = 80 << 20
		sink    = 64 << 20
		garbage = 128 << 20
	)
	buffers := source + sink
	return process + buffers + max(buffers, garbage)
}

// A worker's memory follows the settings, whatever its input is: hundreds of megabytes that arrive as a few, so that one answer of the broker
// may hold all of them, for a job that writes as fast as it can and for one whose sink is slow.
func TestMemoryStaysWithinItsSettings(t *testing.T) {
	t.Parallel()
	const (
		size    = 10_000
		records = 40_000
		parts   = 16
	)
	c := harness.Start(t, localcluster.Config{
		JobManagers: 1, TaskManagers: 1, Slots: 2, Environment: func(string) []string { return []string{"GOGC=", "GOMEMLIMIT="} },
	})
	in := c.Topic(parts, nil)
	client, err := c.Broker.Client(kgo.ProducerBatchCompression(kgo.SnappyCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer client.Close()
	value := bytes.Repeat([]byte("filler that can be compressed; "), size/30+1)[:size]
	for n := range records {
		client.Produce(t.Context(), &kgo.Record{Topic: in, Partition: int32(n % parts), Key: fmt.Appendf(nil, "key-%d", n%100), Value: value}, nil)
	}
	require.NoError(t, client.Flush(t.Context()))
	for _, memory := range []int64{8 << 20, 64 << 20} {
		outs := map[string]string{}
		for _, shape := range []string{"pass", "braked"} {
			outs[shape] = c.Topic(1, nil)
			c.Submit([]string{"--name", fmt.Sprintf("%s-%d", shape, memory)}, "--shape", shape, "--in", in, "--out", outs[shape], "--delay", "1ms",
				"--interval", "500ms", "--memory-bytes", fmt.Sprint(memory))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		awaitOutput(ctx, t, c, outs["pass"], records)
		awaitOutput(ctx, t, c, outs["braked"], 1000)
		for shape, out := range outs {
			pids := c.WorkersOf(out)
			require.Len(t, pids, 1)
			peak, err := usage.Peak(pids...)
			require.NoError(t, err)
			t.Logf("%s, %d MiB for fetched records: %d MiB at most, of %d that it may need", shape, memory>>20, peak>>20, workerNeeds(memory)>>20)
			require.Less(t, peak, workerNeeds(memory), shape)
		}
		for _, shape := range []string{"pass", "braked"} {
			c.MustWeir("cancel", fmt.Sprintf("%s-%d", shape, memory))
		}
	}
}

// awaitOutput waits until so many records are committed to the only partition of a topic.
func awaitOutput(ctx context.Context, t *testing.T, c *harness.Cluster, topic string, records int64) {
	t.Helper()
	harness.Eventually(t, 2*time.Minute, "output in "+topic, func() error {
		end, err := c.Broker.EndOffset(ctx, topic, 0)
		if err == nil && end < records {
			err = fmt.Errorf("it has %d records", end)
		}
		return err
	})
}
