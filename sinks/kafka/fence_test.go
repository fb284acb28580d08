package kafkasink

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
)

// initsSent counts the initialisations that clients ask for.
type initsSent struct{ atomic.Int64 }

var _ kgo.HookBrokerWrite = (*initsSent)(nil)

func (i *initsSent) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.InitProducerID) {
		i.Add(1)
	}
}

// strangerOn begins a transaction on an id, as a worker of a former attempt does that goes on without knowing that it is given up.
func strangerOn(t *testing.T, b *kafkatest.Broker, id, topic string) *kgo.Client {
	t.Helper()
	cl, err := b.Client(kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	require.NoError(t, cl.BeginTransaction())
	require.NoError(t, cl.ProduceSync(t.Context(), kgo.StringRecord("1000")).FirstErr())
	return cl
}

// TestFencingAgain is what a job does every 30 s while it runs: it ends what workers of former attempts have begun since, and touches
// neither ids on which nothing is open nor its own.
func TestFencingAgain(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 1, nil)
	sent := &initsSent{}
	s := openSink(t, b, topic, shortTimeouts, TransactionTimeout(time.Minute), ClientOptions(kgo.WithHooks(sent)))
	c, _ := prepare(t, s, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, s.lanes.ready(ctx)) // no initialisation of its own is under way
	scope := operator.Scope{Parallelism: 1, Again: true, Attempts: []operator.FormerAttempt{{Attempt: 7, Parallelism: 2, Slots: 2}, {Attempt: 8, Parallelism: 1, Slots: 2}}}
	fence := func(again bool) (asked int64) {
		before := sent.Load()
		scope.Again = again
		require.NoError(t, s.RecoverAbort(ctx, scope))
		return sent.Load() - before
	}

	require.Zero(t, fence(true), "ids that the broker does not know")
	first, second := strangerOn(t, b, s.ids.ID(7, 1, 0), topic), strangerOn(t, b, s.ids.ID(8, 0, 1), topic)
	other := strangerOn(t, b, s.ids.ID(9, 0, 0), topic) // of an attempt that is not in the scope
	require.Positive(t, fence(true))
	for _, stranger := range []*kgo.Client{first, second} {
		require.Error(t, stranger.EndTransaction(ctx, kgo.TryCommit), "what was open is aborted, and its writer learns of it")
	}
	require.NoError(t, other.EndTransaction(ctx, kgo.TryCommit))
	require.Zero(t, fence(true), "nothing is open any more")
	require.Positive(t, fence(false), "a restore initialises every id that is known")

	third := strangerOn(t, b, s.ids.ID(7, 1, 0), topic)
	require.Positive(t, fence(true))
	require.Error(t, third.EndTransaction(ctx, kgo.TryCommit))
	require.NoError(t, s.Commit(ctx, c))
	require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
	seen, err := b.ReadNumbers(ctx, topic)
	require.NoError(t, err)
	require.Equal(t, map[int]int{1: 1, 1000: 1}, seen, "its own and the other attempt's")
}

// TestRetentionMovesOnWhileMarkersAreRead: the place where a marker was is deleted between the look at the offsets and the read. With
// transactions v1 the next marker of the producer is a later transaction's, and would tell of a loss that is none.
func TestRetentionMovesOnWhileMarkersAreRead(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 1, nil)
	s := openSink(t, b, topic, shortTimeouts, TransactionTimeout(time.Minute))
	cl, err := b.Client(kgo.TransactionalID("v1-"+topic), kgo.DefaultProduceTopic(topic), kgo.MaxVersions(transactionsV1()))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, cl.BeginTransaction())
		require.NoError(t, cl.ProduceSync(ctx, kgo.StringRecord("1")).FirstErr())
		require.NoError(t, cl.EndTransaction(ctx, end))
		require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
	}
	id, epoch, err := cl.ProducerID(ctx)
	require.NoError(t, err)
	infos, _, err := kafkaconn.Topics(ctx, s.cluster.cl, topic)
	require.NoError(t, err)
	meta, err := kadm.NewClient(s.cluster.cl).ListTopics(ctx, topic)
	require.NoError(t, err)
	first := prepared{
		ID: "v1-" + topic, Identity: Identity{ProducerID: id, ProducerEpoch: epoch, EndTxnVersion: EndTxnV1},
		Topics: []preparedTopic{{Name: topic, ID: infos[topic].ID, Spans: []span{{Count: 1}}}},
	}
	seen := bounds{0, 4, meta[topic].Partitions[0].Leader}
	found, err := s.cluster.marker(ctx, first.Identity, first.Topics[0], first.Topics[0].Spans[0], seen)
	require.NoError(t, err)
	require.Equal(t, markerCommit, found)

	require.NoError(t, b.DeleteRecords(ctx, topic, 0, 2))
	_, err = s.cluster.marker(ctx, first.Identity, first.Topics[0], first.Topics[0].Spans[0], seen)
	require.Equal(t, answers.Again, answers.React(answers.Read, err), "%v", err)
	proof, err := s.cluster.prove(ctx, &first)
	require.NoError(t, err)
	require.Equal(t, verdictGone, proof, "at the second look it is seen that the place is deleted")
}
