package harness

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topic creates a topic for this test and returns its name.
func (c *Cluster) Topic(partitions int, configs map[string]string) string {
	c.t.Helper()
	return c.Broker.Topic(c.t, partitions, configs)
}

// Produce writes records and waits until the broker has them.
func (c *Cluster) Produce(records ...*kgo.Record) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(c.t, c.Broker.Produce(ctx, records...))
}

// Committed returns what a read_committed reader sees in a topic now.
func (c *Cluster) Committed(topic string) []*kgo.Record {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	records, err := c.Broker.ReadCommitted(ctx, topic)
	require.NoError(c.t, err)
	return records
}

// AwaitCommitted waits until at least n records are committed in a topic, and returns all.
func (c *Cluster) AwaitCommitted(topic string, n int, timeout time.Duration) []*kgo.Record {
	c.t.Helper()
	var records []*kgo.Record
	Eventually(c.t, timeout, fmt.Sprintf("%d committed records in %s", n, topic), func() error {
		if records = c.Committed(topic); len(records) < n {
			return fmt.Errorf("there are %d", len(records))
		}
		return nil
	})
	return records
}

// Numbered returns records with the values first to last in decimal, spread over partitions.
func Numbered(topic string, partitions, first, last int) []*kgo.Record {
	var out []*kgo.Record
	for n := first; n <= last; n++ {
		out = append(out, &kgo.Record{
			Topic: topic, Partition: int32(n % partitions), Key: []byte(strconv.Itoa(n % 100)), Value: []byte(strconv.Itoa(n)),
		})
	}
	return out
}

// RequireNumbers checks that the records hold the values first to last, each exactly once.
func RequireNumbers(t testing.TB, records []*kgo.Record, first, last int) {
	t.Helper()
	seen := map[int]int{}
	for _, r := range records {
		n, err := strconv.Atoi(strings.TrimSpace(string(r.Value)))
		require.NoError(t, err, "value %q", r.Value)
		seen[n]++
	}
	var missing, repeated, foreign []int
	for n := first; n <= last; n++ {
		if seen[n] == 0 {
			missing = append(missing, n)
		}
	}
	for n, times := range seen {
		if times > 1 {
			repeated = append(repeated, n)
		}
		if n < first || n > last {
			foreign = append(foreign, n)
		}
	}
	require.Empty(t, missing, "missing")
	require.Empty(t, repeated, "repeated")
	require.Empty(t, foreign, "not expected")
}

// EndOffsets returns the high watermark of each partition of a topic; control records count too.
func (c *Cluster) EndOffsets(topic string) map[int32]int64 {
	c.t.Helper()
	client, err := c.Broker.Client()
	require.NoError(c.t, err)
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(context.Background(), topic)
	require.NoError(c.t, err)
	out := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) { out[o.Partition] = o.Offset })
	return out
}
