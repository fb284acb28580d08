package kafkasink

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sinks/kafka/slots"
)

// shortTimeouts are checkpoint settings that allow a transaction timeout of a second.
var shortTimeouts = graph.CheckpointConfig{Enabled: true, Interval: 50 * time.Millisecond, Timeout: 100 * time.Millisecond, RecoveryBudget: 300 * time.Millisecond}

// openSink opens a transactional sink as the driver does.
func openSink(t *testing.T, b *kafkatest.Broker, topic string, c graph.CheckpointConfig, opts ...Option) *transactional[int] {
	t.Helper()
	encode := func(n int) (Record, error) { return Record{Value: strconv.AppendInt(nil, int64(n), 10)}, nil }
	s := &transactional[int]{encoder: encoder[int]{encode: encode, settings: newSettings(b.Addr(), topic, opts)}}
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Open(t.Context(), sinks.Context{
		ClusterID: "cluster", JobID: topic, UID: "out", Attempt: 1, Parallelism: 1, Checkpoints: c,
		Logger: slog.New(slog.DiscardHandler), Stats: &operator.Stats{}, Now: time.Now,
	}))
	return s
}

// prepare writes a number and prepares its transaction.
func prepare(t *testing.T, s *transactional[int], n int) (sinks.Committable, *prepared) {
	t.Helper()
	txn, err := s.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Write(t.Context(), txn, n, operator.NoTimestamp))
	c, err := s.PreCommit(t.Context(), txn)
	require.NoError(t, err)
	p, err := decodeCommittable(c)
	require.NoError(t, err)
	return c, p
}

// protocols are the ways to write: the version of the transaction protocol and so of EndTxn.
func protocols(t *testing.T, test func(t *testing.T, b *kafkatest.Broker)) {
	t.Helper()
	t.Run("transactions v2", func(t *testing.T) { test(t, kafkatest.Shared(t)) })
	t.Run("transactions v1", func(t *testing.T) {
		test(t, kafkatest.StartFor(t, kafkatest.Config{Features: map[string]int{"transaction.version": 0}}))
	})
}

// TestOutcomes holds the table of answers to a real broker: each situation is brought about and the transaction is finished.
func TestOutcomes(t *testing.T) {
	protocols(t, func(t *testing.T, b *kafkatest.Broker) {
		situations := map[string]struct {
			arrange func(t *testing.T, s *transactional[int], p *prepared)
			check   func(t *testing.T, err error)
			visible bool
		}{
			"prepared, first time": {
				arrange: func(*testing.T, *transactional[int], *prepared) {},
				check:   func(t *testing.T, err error) { require.NoError(t, err) }, visible: true,
			},
			"repeated": {
				arrange: func(t *testing.T, s *transactional[int], p *prepared) { require.NoError(t, finishNow(t, s, p)) },
				check:   func(t *testing.T, err error) { require.NoError(t, err) }, visible: true,
			},
			"aborted before": {
				arrange: func(t *testing.T, s *transactional[int], p *prepared) {
					require.NoError(t, s.cluster.endTxn(t.Context(), p, false))
				},
				check: func(t *testing.T, err error) { require.ErrorIs(t, err, sinks.ErrLost) },
			},
			"aborted by initialising the id": {
				arrange: func(t *testing.T, s *transactional[int], p *prepared) {
					require.NoError(t, s.cluster.initIDs(t.Context(), []string{p.ID}, false))
				},
				check: func(t *testing.T, err error) { require.ErrorIs(t, err, sinks.ErrLost) },
			},
			"committed, then the id initialised": {
				arrange: func(t *testing.T, s *transactional[int], p *prepared) {
					require.NoError(t, finishNow(t, s, p))
					require.NoError(t, s.cluster.initIDs(t.Context(), []string{p.ID}, false))
				},
				check: func(t *testing.T, err error) { require.NoError(t, err) }, visible: true,
			},
			"committed, then the id forgotten by the broker": {
				arrange: func(t *testing.T, s *transactional[int], p *prepared) {
					require.NoError(t, finishNow(t, s, p))
					p.ID += ".forgotten"
				},
				check: func(t *testing.T, err error) { require.NoError(t, err) }, visible: true,
			},
			"id forgotten and markers deleted by retention": {
				arrange: func(t *testing.T, s *transactional[int], p *prepared) {
					require.NoError(t, finishNow(t, s, p))
					topic := p.Topics[0]
					require.NoError(t, b.WaitNoOpenTransactions(t.Context(), topic.Name))
					require.NoError(t, b.DeleteRecords(t.Context(), topic.Name, 0, -1))
					p.ID += ".forgotten"
				},
				check: func(t *testing.T, err error) { require.ErrorIs(t, err, sinks.ErrUnknown) },
			},
			"committed, the id initialised and markers deleted by retention": {
				arrange: func(t *testing.T, s *transactional[int], p *prepared) {
					require.NoError(t, finishNow(t, s, p))
					topic := p.Topics[0]
					require.NoError(t, b.WaitNoOpenTransactions(t.Context(), topic.Name))
					require.NoError(t, b.DeleteRecords(t.Context(), topic.Name, 0, -1))
					require.NoError(t, s.cluster.initIDs(t.Context(), []string{p.ID}, false))
				},
				check: func(t *testing.T, err error) { require.ErrorIs(t, err, sinks.ErrUnknown, "never told as lost") },
			},
			"topic created again": {
				arrange: func(t *testing.T, _ *transactional[int], p *prepared) {
					recreate(t, b, p.Topics[0].Name)
				},
				check: func(t *testing.T, err error) {
					require.ErrorIs(t, err, sinks.ErrLost)
					require.ErrorContains(t, err, "created again")
				},
			},
			"topic deleted": {
				arrange: func(t *testing.T, s *transactional[int], p *prepared) {
					require.NoError(t, b.DeleteTopic(t.Context(), p.Topics[0].Name))
					require.Eventually(t, func() bool { // a broker learns of it a little later
						_, missing, err := kafkaconn.Topics(t.Context(), s.cluster.cl, p.Topics[0].Name)
						return err == nil && errors.Is(missing[p.Topics[0].Name], kafkaconn.ErrNoTopic)
					}, 20*time.Second, 20*time.Millisecond)
				},
				check: func(t *testing.T, err error) {
					require.ErrorIs(t, err, sinks.ErrLost)
					require.ErrorContains(t, err, "was deleted")
				},
			},
		}
		for name, s := range situations {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				topic := b.Topic(t, 1, nil)
				sink := openSink(t, b, topic, shortTimeouts, TransactionTimeout(time.Minute))
				_, p := prepare(t, sink, 1)
				s.arrange(t, sink, p)
				err := finishNow(t, sink, p)
				s.check(t, err)
				if err == nil {
					// Deciding again must not change the answer.
					require.NoError(t, finishNow(t, sink, p))
					require.NoError(t, b.WaitNoOpenTransactions(t.Context(), topic))
					seen, err := b.ReadNumbers(t.Context(), topic)
					require.NoError(t, err)
					require.Equal(t, s.visible, seen[1] == 1)
				}
			})
		}
	})
}

// recreate creates a topic again as soon as the broker has let go of the name.
// recreate deletes a topic and creates it again. It returns when the broker tells of the new one, of which it learns a little later.
func recreate(t *testing.T, b *kafkatest.Broker, topic string) {
	t.Helper()
	cl, err := b.Client()
	require.NoError(t, err)
	defer cl.Close()
	id := func() kafkaconn.TopicID {
		found, _, err := kafkaconn.Topics(t.Context(), cl, topic)
		require.NoError(t, err)
		return found[topic].ID
	}
	before := id()
	require.NoError(t, b.DeleteTopic(t.Context(), topic))
	require.Eventually(t, func() bool { return b.CreateTopic(t.Context(), topic, 1, nil) == nil }, 20*time.Second, 20*time.Millisecond)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if now := id(); now != before && now != (kafkaconn.TopicID{}) {
			break
		}
		require.True(t, time.Now().Before(deadline), "the broker tells of the former topic")
	}
	require.Eventually(t, func() bool {
		_, err := b.EndOffset(t.Context(), topic, 0)
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
}

// finishNow finishes a transaction, repeating undecided answers as the driver does.
func finishNow(t *testing.T, s *transactional[int], p *prepared) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		err := s.cluster.finish(ctx, p)
		if !isRetriable(err) || ctx.Err() != nil {
			return err
		}
	}
}

func isRetriable(err error) bool {
	return err != nil && operator.ClassOf(err).Passing() && !errors.Is(err, sinks.ErrLost) && !errors.Is(err, sinks.ErrUnknown)
}

// TestTimedOutTransactionIsLost lets the broker end a prepared transaction.
func TestTimedOutTransactionIsLost(t *testing.T) {
	protocols(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.Topic(t, 1, nil)
		s := openSink(t, b, topic, shortTimeouts, TransactionTimeout(time.Second))
		c, p := prepare(t, s, 1)
		require.NoError(t, s.Prove(t.Context(), []sinks.Committable{c}, 10*time.Millisecond))
		require.ErrorIs(t, s.Prove(t.Context(), []sinks.Committable{c}, 2*time.Second), errOverdue, "less than the budget is left")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
		require.ErrorIs(t, s.Prove(t.Context(), []sinks.Committable{c}, 10*time.Millisecond), errOverdue, "the broker has ended it")
		require.ErrorIs(t, finishNow(t, s, p), sinks.ErrLost)
		err := s.Commit(t.Context(), c)
		require.ErrorIs(t, err, sinks.ErrLost, "the client's own commit must not hide it")
		require.ErrorContains(t, err, topic+"/0 offsets 0 to 0 (1 records)")
	})
}

// TestProofKnowsACommittedTransaction: an old transaction that was committed beside the task is no reason to fail.
func TestProofKnowsACommittedTransaction(t *testing.T) {
	b := kafkatest.Shared(t)
	s := openSink(t, b, b.Topic(t, 1, nil), shortTimeouts, TransactionTimeout(time.Second))
	c, _ := prepare(t, s, 1)
	require.NoError(t, s.Commit(t.Context(), c))
	require.NoError(t, s.Prove(t.Context(), []sinks.Committable{c}, 2*time.Second))
}

// TestProofWithoutMarkers: while somebody else's transaction is open in front of it, no marker tells how a transaction ended.
func TestProofWithoutMarkers(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 1, nil)
	other, err := b.Client(kgo.TransactionalID("other-"+topic), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, other.BeginTransaction())
	require.NoError(t, other.ProduceSync(t.Context(), kgo.StringRecord("in front")).FirstErr())
	s := openSink(t, b, topic, shortTimeouts, TransactionTimeout(time.Second))
	c, p := prepare(t, s, 2)
	require.NoError(t, s.Commit(t.Context(), c))
	require.Eventually(t, func() bool { // the coordinator may still be at it
		view, err := s.cluster.view(t.Context(), p)
		return err == nil && view == viewOther
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, s.Prove(t.Context(), []sinks.Committable{c}, 2*time.Second))
	require.NoError(t, other.EndTransaction(t.Context(), kgo.TryAbort))
}

// TestRecreatedTopicFailsThePrepare: rows that went to the old topic are gone, but no checkpoint counts on them yet.
func TestRecreatedTopicFailsThePrepare(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 1, nil)
	s := openSink(t, b, topic, shortTimeouts, TransactionTimeout(time.Minute))
	txn, err := s.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Write(t.Context(), txn, 1, operator.NoTimestamp))
	_, err = txn.lane.flush(t.Context(), 10*time.Second)
	require.NoError(t, err)
	recreate(t, b, topic)
	_, err = s.PreCommit(t.Context(), txn)
	require.ErrorIs(t, err, errRecreated)
}

// TestClientThatFailsToCommitIsReplaced: the commit goes on by identity and the id is initialised anew before it is used again.
func TestClientThatFailsToCommitIsReplaced(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 1, nil)
	s := openSink(t, b, topic, shortTimeouts, TransactionTimeout(time.Minute))
	c, p := prepare(t, s, 1)
	s.lanes.find(p.ID).producer.Close() // as if it had broken
	require.NoError(t, s.Commit(t.Context(), c))
	require.NoError(t, b.WaitNoOpenTransactions(t.Context(), topic))
	s.Release(c)
	for n := 2; n <= 5; n++ {
		c, _ := prepare(t, s, n)
		require.NoError(t, s.Commit(t.Context(), c))
		s.Release(c)
	}
	require.NoError(t, b.WaitNoOpenTransactions(t.Context(), topic))
	seen, err := b.ReadNumbers(t.Context(), topic)
	require.NoError(t, err)
	require.NoError(t, kafkatest.CheckLedger(seen, 1, 5))
	ids, err := b.TransactionalIDs(t.Context(), "weir.cluster."+topic+".")
	require.NoError(t, err)
	require.LessOrEqual(t, len(ids), 4)
}

// TestPoolOfIDsReachesItsBound: a sink whose checkpoints never complete fails instead of waiting inside the chain.
func TestPoolOfIDsReachesItsBound(t *testing.T) {
	b := kafkatest.Shared(t)
	s := openSink(t, b, b.Topic(t, 1, nil), shortTimeouts, TransactionTimeout(time.Minute))
	for n := range slotBound(shortTimeouts) {
		prepare(t, s, n)
	}
	begin := time.Now()
	_, err := s.Begin(t.Context())
	require.ErrorIs(t, err, slots.ErrExhausted)
	require.Less(t, time.Since(begin), 5*time.Second)
}

// TestBrokerDiesBetweenPrepareAndCommit kills the broker and starts it again; the live sink commits, and so does another process.
func TestBrokerDiesBetweenPrepareAndCommit(t *testing.T) {
	b := kafkatest.StartFor(t, kafkatest.Config{})
	topic := b.Topic(t, 1, nil)
	s := openSink(t, b, topic, shortTimeouts, TransactionTimeout(5*time.Minute))
	c1, _ := prepare(t, s, 1)
	_, p2 := prepare(t, s, 2)
	require.NoError(t, b.Kill())
	require.NoError(t, b.Restart(t.Context()))
	for {
		err := s.Commit(t.Context(), c1)
		if err == nil {
			break
		}
		require.True(t, isRetriable(err), "%v", err)
	}
	require.NoError(t, finishNow(t, s, p2))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
	seen, err := b.ReadNumbers(ctx, topic)
	require.NoError(t, err)
	require.NoError(t, kafkatest.CheckLedger(seen, 1, 2))
}
