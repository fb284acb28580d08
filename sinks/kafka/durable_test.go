package kafkasink_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/operator"
	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	"github.com/weir-stream/weir/sinks/sinktest"
)

// directory is checkpoint storage.
type directory string

func (d directory) file(name string) string {
	return filepath.Join(string(d), strings.ReplaceAll(name, "/", "_"))
}

func (d directory) Upload(_ context.Context, local, name string, _ uint64, _ uint32) error {
	return os.Rename(local, d.file(name))
}

func (d directory) Fetch(_ context.Context, s *snapshotv1.Segment) (string, error) {
	return d.file(s.GetName()), nil
}

// various are records that differ in all that must come out the same the second time.
func various(n int) (kafkasink.Record, error) {
	r := kafkasink.Record{Key: fmt.Appendf(nil, "key %d", n%5), Value: fmt.Appendf(nil, "value %d", n), Timestamp: time.UnixMilli(int64(1_000_000 + n))}
	switch n % 4 {
	case 1:
		r.Partition, r.Value = kafkasink.ToPartition(int32(n%3)), nil
	case 2:
		r.Headers = []kafkasink.Header{{Key: "a", Value: []byte("1")}, {Key: "a"}, {Key: "", Value: []byte{}}}
	case 3:
		r.Partition, r.Key, r.Value = kafkasink.ToPartition(int32(n%3)), []byte{}, []byte{}
	}
	return r, nil
}

// durable opens an attempt of a sink with durable output.
func durable(t *testing.T, b *kafkatest.Broker, topic string, store directory, attempt uint64, opts ...kafkasink.Option) operator.Rewriter {
	t.Helper()
	opts = append(opts, kafkasink.DurableOutput(), kafkasink.TransactionTimeout(5*time.Minute))
	instance, err := kafkasink.New(b.Addr(), topic, various, opts...).NewInstance(graph.ExactlyOnce)
	require.NoError(t, err)
	t.Cleanup(func() { _ = instance.Close() })
	require.NoError(t, instance.Open(t.Context(), &operator.Runtime{
		ClusterID: "cluster", JobID: topic, Vertex: "out", Attempt: attempt, Operator: graph.Operator{UID: "out"}, Parallelism: 1,
		Checkpoints: sinktest.Checkpoints(), Clock: realClock{}, Logger: slog.New(slog.DiscardHandler), Stats: &operator.Stats{},
		Segments: store, Dir: t.TempDir(),
	}))
	return instance.(operator.Rewriter)
}

// end initialises a transactional id, which aborts what is open on it.
func end(t *testing.T, b *kafkatest.Broker, id string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.TransactionalID(id))
	require.NoError(t, err)
	defer cl.Close()
	_, _, err = cl.ProducerID(t.Context())
	require.NoError(t, err)
}

// rows are the records of a topic by partition, with all that a writer chooses.
func rows(t *testing.T, b *kafkatest.Broker, topic string) map[int32][]string {
	t.Helper()
	records, err := b.ReadCommitted(t.Context(), topic)
	require.NoError(t, err)
	out := map[int32][]string{}
	for _, r := range records {
		out[r.Partition] = append(out[r.Partition], fmt.Sprintf("%#v %#v %#v %d", r.Key, r.Value, r.Headers, r.Timestamp.UnixMilli()))
	}
	return out
}

// What is lost is written again byte for byte, with everything behind it, in one transaction that anybody can commit, or lose again.
func TestLostOutputIsWrittenAgain(t *testing.T) {
	b := kafkatest.Shared(t)
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const many = 2000 // so that the records are in a file
			store := directory(t.TempDir())
			write := func(i operator.Rewriter, first, last int) {
				for n := first; n < last; n++ {
					require.NoError(t, i.(operator.Instance).Input().(operator.Collector[int]).Collect(n, operator.NoTimestamp))
				}
			}
			barrier := func(i operator.Rewriter, n uint64) []*snapshotv1.Committable {
				finish, err := i.(operator.Instance).Snapshot(t.Context(), operator.Barrier{Checkpoint: n})
				require.NoError(t, err)
				snap, err := finish(t.Context())
				require.NoError(t, err)
				return snap.GetCommittables()
			}
			// The same records in another topic, committed without trouble.
			wanted := b.Topic(t, 3, nil)
			plain := durable(t, b, wanted, store, 1, client)
			require.NoError(t, plain.RecoverAbort(t.Context(), operator.Scope{Parallelism: 1}))
			write(plain, 0, many+20)
			barrier(plain, 1)
			done := make(chan error, 1)
			plain.Commit(1, func(err error) { done <- err })
			require.NoError(t, <-done)
			require.NoError(t, b.WaitNoOpenTransactions(t.Context(), wanted))
			want := rows(t, b, wanted)

			topic := b.Topic(t, 3, nil)
			first := durable(t, b, topic, store, 1, client)
			require.NoError(t, first.RecoverAbort(t.Context(), operator.Scope{Parallelism: 1}))
			write(first, 0, many)
			barrier(first, 1)
			write(first, many, many+20)
			cs := barrier(first, 2)
			require.Len(t, cs, 2)
			require.NotEmpty(t, cs[0].GetRecords()[0].GetName())
			idOf := func(attempt int) string { return fmt.Sprintf("weir.cluster.%s.out.%d.0.0", topic, attempt) }
			end(t, b, idOf(1)) // the first transaction; the second stays open

			var group operator.Restored
			for _, c := range cs {
				group = append(group, operator.RestoredTransaction{
					Committable: c, StandsFor: []*workerv1.ReplacedTransactions{{Checkpoints: []uint64{c.GetCheckpoint()}}},
				})
			}
			// A limit that was lowered since is for new records.
			second := durable(t, b, topic, store, 2, client, kafkasink.MaxRecordBytes(1))
			r, err := second.RecoverOrRewrite(t.Context(), []operator.Restored{group})
			require.NoError(t, err)
			require.Equal(t, []uint64{1, 2}, r.GetReplaced()[0].GetCheckpoints())
			require.Empty(t, rows(t, b, topic), "the log does not know yet")

			// It dies after the entry, and the replacement is lost as well.
			end(t, b, idOf(2))
			c := r.GetCommittable()
			for _, old := range cs {
				c.Records = append(c.Records, old.GetRecords()...)
			}
			replaced := []operator.Restored{{{Committable: c, StandsFor: r.GetReplaced()}}}
			third := durable(t, b, topic, store, 3, client)
			again, err := third.RecoverOrRewrite(t.Context(), replaced)
			require.NoError(t, err)
			require.NotNil(t, again)
			require.Equal(t, []uint64{1, 2}, again.GetReplaced()[0].GetCheckpoints())

			// It dies after the entry again; the next attempt commits by identity, and one more finds it committed.
			c = again.GetCommittable()
			c.Records = replaced[0][0].Committable.GetRecords()
			for attempt := range uint64(2) {
				next := durable(t, b, topic, store, 4+attempt, client)
				none, err := next.RecoverOrRewrite(t.Context(), []operator.Restored{{{Committable: c, StandsFor: again.GetReplaced()}}})
				require.NoError(t, err)
				require.Nil(t, none)
				require.NoError(t, next.CommitRewritten(t.Context()))
				require.NoError(t, next.RecoverAbort(t.Context(), operator.Scope{
					Parallelism: 1, Attempts: []operator.FormerAttempt{sinktest.Former(1), sinktest.Former(2), sinktest.Former(3)},
				}))
				require.NoError(t, b.WaitNoOpenTransactions(t.Context(), topic))
				got := rows(t, b, topic)
				for p := range int32(3) {
					require.Len(t, got[p], len(want[p]), "partition %d", p)
					for i := range want[p] {
						require.Equal(t, want[p][i], got[p][i], "partition %d, record %d", p, i)
					}
				}
			}
		})
	}
}
