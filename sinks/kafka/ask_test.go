package kafkasink

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// fakeCluster is a connection to a broker whose answers to one request are scripted; after them it answers by itself.
func fakeCluster(t *testing.T, key kmsg.Key, codes ...int16) (c *cluster, asked *int) {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	asked = new(int)
	script(fake, key, asked, codes...)
	s, err := newSettings(fake.ListenAddrs()[0], "t", nil).client()
	require.NoError(t, err)
	c, err = newCluster(s, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(c.close)
	return c, asked
}

func script(fake *kfake.Cluster, key kmsg.Key, asked *int, codes ...int16) {
	fake.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		*asked++
		if *asked > len(codes) {
			return nil, nil, false
		}
		return answerWith(req, codes[*asked-1]), nil, true
	})
}

func answerWith(req kmsg.Request, code int16) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.InitProducerIDRequest:
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = code
		return resp
	case *kmsg.DescribeTransactionsRequest:
		resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		for _, id := range req.TransactionalIDs {
			state := kmsg.NewDescribeTransactionsResponseTransactionState()
			state.TransactionalID, state.ErrorCode = id, code
			resp.TransactionStates = append(resp.TransactionStates, state)
		}
		return resp
	case *kmsg.DescribeConfigsRequest:
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range req.Resources {
			answer := kmsg.NewDescribeConfigsResponseResource()
			answer.ResourceType, answer.ResourceName, answer.ErrorCode = r.ResourceType, r.ResourceName, code
			resp.Resources = append(resp.Resources, answer)
		}
		return resp
	case *kmsg.ApiVersionsRequest:
	}
	panic("unscripted request")
}

// What passes is asked again, with back-off and until the deadline; what does not ends the request at once.
func TestRequestsAreRepeatedWhileNothingIsDecided(t *testing.T) {
	passing := []int16{
		kerr.ConcurrentTransactions.Code, kerr.UnknownServerError.Code, kerr.InvalidTxnState.Code, kerr.CoordinatorLoadInProgress.Code, kerr.NotCoordinator.Code,
	}
	short := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	t.Run("fence", func(t *testing.T) {
		c, asked := fakeCluster(t, kmsg.InitProducerID, passing...)
		require.NoError(t, c.initID(short(t), "x"))
		require.Equal(t, len(passing)+1, *asked)
	})
	t.Run("fence, no right", func(t *testing.T) {
		c, asked := fakeCluster(t, kmsg.InitProducerID, kerr.TransactionalIDAuthorizationFailed.Code)
		err := c.initID(short(t), "x")
		require.ErrorIs(t, err, operator.ErrRefused)
		require.ErrorContains(t, err, `the right Write on transactional id "x"`)
		require.Equal(t, 1, *asked)
	})
	t.Run("fence, until the deadline", func(t *testing.T) {
		codes := make([]int16, 1000)
		for i := range codes {
			codes[i] = kerr.ConcurrentTransactions.Code
		}
		c, asked := fakeCluster(t, kmsg.InitProducerID, codes...)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, c.initID(ctx, "x"), kerr.ConcurrentTransactions, "the answer, not only that time is up")
		require.Less(t, *asked, 20)
	})
	t.Run("describe", func(t *testing.T) {
		c, asked := fakeCluster(t, kmsg.DescribeTransactions, kerr.UnknownServerError.Code, kerr.CoordinatorLoadInProgress.Code)
		described, err := c.describe(short(t), "x")
		require.NoError(t, err)
		require.Empty(t, described, "the broker does not know it")
		require.Equal(t, 3, *asked)
	})
	t.Run("limit of timeouts", func(t *testing.T) {
		c, asked := fakeCluster(t, kmsg.DescribeConfigs, kerr.RequestTimedOut.Code, kerr.UnknownServerError.Code, kerr.ClusterAuthorizationFailed.Code)
		limit, known, err := c.maxTimeout(short(t))
		require.NoError(t, err)
		require.False(t, known, "nobody may read it")
		require.Equal(t, defaultMaxTimeout, limit)
		require.Equal(t, 3, *asked)
	})
}

// TestTimeoutRefusedByTheBroker: where its limit cannot be read beforehand, the broker's own refusal names setting, value and way out.
func TestTimeoutRefusedByTheBroker(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	var configs, inits int
	denied := kerr.ClusterAuthorizationFailed.Code
	script(fake, kmsg.DescribeConfigs, &configs, denied, denied, denied)
	script(fake, kmsg.InitProducerID, &inits, kerr.InvalidTransactionTimeout.Code)
	encode := func(int) (Record, error) { return Record{}, nil }
	s := &transactional[int]{encoder: encoder[int]{encode: encode, settings: newSettings(fake.ListenAddrs()[0], "t", []Option{TransactionTimeout(2 * time.Hour)})}}
	t.Cleanup(func() { _ = s.Close() })
	err = s.Open(t.Context(), sinks.Context{
		ClusterID: "cluster", JobID: "job", UID: "out", Attempt: 1, Parallelism: 1,
		Checkpoints: graph.CheckpointConfig{Enabled: true, Interval: time.Second, Timeout: time.Second, RecoveryBudget: time.Second},
		Logger:      slog.New(slog.DiscardHandler), Stats: &operator.Stats{}, Now: time.Now,
	})
	require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
	for _, text := range []string{"transaction timeout 2h0m0s", "transaction.max.timeout.ms", "raise the broker's limit"} {
		require.ErrorContains(t, err, text)
	}
	require.Equal(t, 1, inits)
}
