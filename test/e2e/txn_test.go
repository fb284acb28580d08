package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/test/harness"
)

type transactionList struct {
	Transactions []struct {
		ID, State, Checkpoint, AgeMs, LeftMs, Attempt string
		Listed, Current                               bool
		Parts                                         []struct{ Place, Records string }
	}
	Held     []struct{ Place, Owner, Ends, Transaction, Visible, End string }
	Problems []string
}

func listTransactions(t *testing.T, c *harness.Cluster, id string) (l transactionList) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(c.MustWeir("txn", "list", id, "-o", "json")), &l))
	require.Empty(t, l.Problems)
	return l
}

// prepared returns the id of the one transaction that a completed checkpoint lists and that is not committed.
func prepared(t *testing.T, c *harness.Cluster, job string) (id string, records int) {
	t.Helper()
	for _, x := range listTransactions(t, c, job).Transactions {
		if x.State == "TRANSACTION_STATE_PREPARED" && x.Listed {
			require.NotEqual(t, "0", x.Checkpoint)
			require.NotEqual(t, "-1", x.AgeMs)
			require.NotEqual(t, "-1", x.LeftMs)
			_, err := fmt.Sscan(x.Parts[0].Records, &records)
			require.NoError(t, err)
			return x.ID, records
		}
	}
	t.Fatalf("no prepared transaction in %v", c.MustWeir("txn", "list", job))
	return "", 0
}

// abortBehind aborts what is open on a transactional id as a stranger would.
func abortBehind(t *testing.T, c *harness.Cluster, id string) {
	t.Helper()
	cl, err := c.Broker.Client()
	require.NoError(t, err)
	defer cl.Close()
	harness.Eventually(t, 10*time.Second, "the id to be initialised", func() error {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr(id), 10_000
		req.ProducerID, req.ProducerEpoch = -1, -1
		resp, err := req.RequestWith(t.Context(), cl)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}

func refusedWith(t *testing.T, r harness.Result, words ...string) {
	t.Helper()
	require.NotZero(t, r.Code, r.Stdout)
	for _, w := range words {
		require.Contains(t, strings.Join(strings.Fields(r.Stdout+r.Stderr), " "), w)
	}
}

// An operator sees the transactions of jobs, whoever holds output back, and what was lost, and can end what no job ends.
func TestTransactionsOfJobs(t *testing.T) {
	t.Parallel()
	c := harness.StartWithSharedFaultPoints(t, localcluster.Config{
		JobManagers: 1, TaskManagers: 1, Slots: 2,
		ConfigureJobManager: func(cfg *jobmanager.Config) { cfg.RecoveryBudget = time.Second },
	})
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	args := []string{"--shape", "pass", "--in", in, "--out", out, "--interval", "300ms"}
	produced := 0
	produce := func(n int) {
		c.Produce(harness.Numbered(in, 1, produced, produced+n-1)...)
		produced += n
	}
	lost := 0
	var first, second string

	t.Run("lost output stops the job", func(t *testing.T) {
		c := c.For(t)
		first = c.Submit([]string{"-p", "1", "--name", "first"}, args...)
		produce(20)
		c.AwaitCommitted(out, 20, 30*time.Second)
		c.ArmRole(localcluster.Worker, faultpoint.CommitDue, "hang")
		produce(30)
		_, err := c.AwaitRoleFired(localcluster.Worker, faultpoint.CommitDue, 20*time.Second)
		require.NoError(t, err)
		id, records := prepared(t, c, first)
		lost = records
		refusedWith(t, c.Weir("txn", "abort", id, "--job", first, "--yes"), "running attempt")
		refusedWith(t, c.Weir("txn", "commit", id, "--job", first, "--yes", "--force", "duplicate-records"), "running attempt")
		abortBehind(t, c, id)
		pid, _, err := c.WorkerOf()
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		c.WaitState(first, "FAILED", 40*time.Second)
		shown := c.MustWeir("show", first)
		require.Contains(t, shown, fmt.Sprintf("transaction %s  %d records: %s/0 (%d), lost;", id, records, out, records))
		require.Contains(t, shown, "was aborted after it was prepared")
		explained := strings.Join(strings.Fields(c.MustWeir("explain", first)), " ")
		require.Contains(t, explained, "weir submit --from "+first+"@")
		require.Contains(t, explained, "--accept-loss")
		require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), out))
	})

	if t.Failed() {
		return
	}
	t.Run("a restart goes on without it only when told to", func(t *testing.T) {
		c := c.For(t)
		from := append([]string{"submit", "-p", "1", "--name", "second", "--from", first + "@last", c.Binaries.Job, "--", "--brokers", c.Broker.Addr()}, args...)
		refusedWith(t, c.Weir(from...), "is lost", "--accept-loss")
		second = c.Submit([]string{"-p", "1", "--name", "second", "--from", first + "@last", "--accept-loss"}, args...)
		produce(10)
		got := c.AwaitCommitted(out, produced-lost, 30*time.Second)
		require.Len(t, got, produced-lost)
		require.Contains(t, c.MustWeir("show", second), "lost (accepted)")
	})

	if t.Failed() {
		return
	}
	t.Run("whose transaction holds output back", func(t *testing.T) {
		c := c.For(t)
		cl, err := c.Broker.Client(kgo.TransactionalID("a-stranger"), kgo.TransactionTimeout(50*time.Second))
		require.NoError(t, err)
		defer cl.Close()
		require.NoError(t, cl.BeginTransaction())
		require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: out, Value: []byte("strange")}).FirstErr())
		harness.Eventually(t, 20*time.Second, "the stranger to be told of", func() error {
			text := strings.Join(strings.Fields(c.MustWeir("txn", "list", second)+c.MustWeir("explain", second)), " ")
			for _, want := range []string{"Readers of " + out + "/0 see it up to offset", `transactional id "a-stranger"`, "What ends it: that producer, or the broker, in"} {
				if strings.Count(text, want) < 2 {
					return fmt.Errorf("%q is not told twice in %s", want, text)
				}
			}
			return nil
		})
		refusedWith(t, c.Weir("txn", "abort", "a-stranger", "--job", second, "--yes"), "no open or prepared transaction")
		require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryAbort))
	})

	t.Run("what an ended job left is committed by hand or later", func(t *testing.T) {
		c := c.For(t)
		c.ArmRole(localcluster.Worker, faultpoint.CommitDue, "hang")
		produce(5)
		_, err := c.AwaitRoleFired(localcluster.Worker, faultpoint.CommitDue, 20*time.Second)
		require.NoError(t, err)
		id, _ := prepared(t, c, second)
		require.NoError(t, c.TaskManagers()[0].Kill())
		refusedWith(t, c.Weir("cancel", second), "unsettled")
		require.NoError(t, c.TaskManagers()[0].Start())
		refusedWith(t, c.Weir("txn", "commit", "weir.nobody.1.2.3", "--job", second, "--yes"))
		refusedWith(t, c.Weir("txn", "abort", id, "--job", second, "--yes"))
		harness.Eventually(t, 30*time.Second, "the commit", func() error {
			if r := c.Weir("txn", "commit", id, "--job", second, "--yes"); r.Code != 0 {
				return fmt.Errorf("%s%s", r.Stdout, r.Stderr)
			}
			return nil
		})
		require.Contains(t, c.MustWeir("txn", "commit", id, "--job", second, "--yes"), "COMMITTED before")
		c.AwaitCommitted(out, produced-lost, 20*time.Second)
		harness.Eventually(t, 30*time.Second, "the job to be settled", func() error {
			if u := c.Job(second).Unsettled; u != "" {
				return fmt.Errorf("it is not: %s", u)
			}
			return nil
		})
		require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), out))
	})
}
