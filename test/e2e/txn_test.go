package e2e_test

import (
	"encoding/json"
	"fmt"
	"strconv"
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
		JobManagers: 1, TaskManagers: 1, Slots: 3,
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
		// It is tried at once to settle the job, and when that is done there is no transaction any more.
		if r := c.Weir("txn", "commit", id, "--job", second, "--yes"); r.Code == 0 {
			require.Contains(t, r.Stdout, "COMMITTED before")
		} else {
			refusedWith(t, r, "no open or prepared transaction")
		}
		c.AwaitCommitted(out, produced-lost, 20*time.Second)
		harness.Eventually(t, 30*time.Second, "the job to be settled", func() error {
			if u := c.Job(second).Unsettled; u != "" {
				return fmt.Errorf("it is not: %s", u)
			}
			return nil
		})
		require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), out))
	})
	if t.Failed() {
		return
	}
	t.Run("what is done by force, is not known, or is written again", func(t *testing.T) {
		endedByForce(t, c.For(t))
	})
}

// leftover is a job that was canceled while nobody could end its transactions.
type leftover struct {
	id, in, out string
	listed      string // a transaction that a completed checkpoint lists
	records     int    // that it has
}

// endedByForce: three jobs end with transactions left. Of one an operator ends two against the safeguards, of one nobody can find out what
// became of its transaction, and one has kept what its transaction held.
func endedByForce(t *testing.T, c *harness.Cluster) {
	jobs := map[string]*leftover{"forced": {}, "unknown": {}, "kept": {}}
	for name, j := range jobs {
		j.in, j.out = c.Topic(1, nil), c.Topic(1, nil)
		j.id = c.Submit([]string{"-p", "1", "--name", name}, "--shape", "pass", "--in", j.in, "--out", j.out, "--interval", "300ms",
			fmt.Sprintf("--durable=%t", name == "kept"))
		c.Produce(harness.Numbered(j.in, 1, 1, 10)...)
	}
	for name, j := range jobs {
		c.AwaitCommitted(j.out, 10, 30*time.Second)
		c.ArmRole(localcluster.Worker, faultpoint.CommitDue, "hang,job="+name)
		c.Produce(harness.Numbered(j.in, 1, 11, 20)...)
		_, err := c.AwaitRoleFired(localcluster.Worker, faultpoint.CommitDue, 20*time.Second)
		require.NoError(t, err)
		j.listed, j.records = prepared(t, c, j.id)
	}
	forced := jobs["forced"]
	open := openUnlisted(t, c, forced)
	tm := c.TaskManagers()[0]
	require.NoError(t, tm.Kill())
	unknown, kept := jobs["unknown"], jobs["kept"]
	for _, j := range []*leftover{kept, unknown, forced} {
		if j != forced {
			abortBehind(t, c, j.listed)
		}
		refusedWith(t, c.Weir("cancel", j.id), "unsettled")
	}
	require.NoError(t, c.Broker.DeleteRecords(t.Context(), unknown.out, 0, -1)) // all, and with them what tells of the outcome
	// Each settling in the background dies, and the next one comes after 10 s at the earliest: time enough for what is done by hand.
	dies := func() { c.ArmRole(localcluster.Worker, faultpoint.RecoverDue, "kill,job=forced") }
	died := func() {
		t.Helper()
		_, err := c.AwaitRoleFired(localcluster.Worker, faultpoint.RecoverDue, 40*time.Second)
		require.NoError(t, err)
	}
	dies()
	require.NoError(t, tm.Start())
	died()
	told := make(chan harness.Result, 1) // after the command's patience: an outcome that is not known may come to be
	go func() { told <- c.Weir("txn", "commit", unknown.listed, "--job", unknown.id, "--yes") }()
	dies()
	r := c.Weir("txn", "abort", forced.listed, "--job", forced.id, "--yes", "--force", "lose-records")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "ABORTED")
	died() // it was tried at once
	dies()
	require.Contains(t, c.MustWeir("txn", "abort", forced.listed, "--job", forced.id, "--yes"), "ABORTED before")
	died()
	refusedWith(t, c.Weir("txn", "commit", open, "--job", forced.id, "--yes"), "no completed checkpoint lists")
	r = c.Weir("txn", "commit", open, "--job", forced.id, "--yes", "--force", "duplicate-records")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "COMMITTED")
	settled := func(j *leftover) {
		t.Helper()
		harness.Eventually(t, time.Minute, "the job to be settled", func() error {
			if u := c.Job(j.id).Unsettled; u != "" {
				return fmt.Errorf("it is not: %s", u)
			}
			return nil
		})
		require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), j.out))
	}
	settled(forced)
	got := map[string]int{}
	for _, r := range c.Committed(forced.out) {
		got[string(r.Value)]++
	}
	require.Len(t, got, 30-forced.records, "all but what was aborted: %v", got)
	require.Equal(t, 1, got["30"], "what was committed by force")
	require.Contains(t, c.MustWeir("show", forced.id), "lost (accepted)")

	settled(unknown)
	require.Contains(t, c.MustWeir("show", unknown.id), "lost or not, which cannot be found out")
	settled(kept)
	harness.RequireNumbers(t, c.Committed(kept.out), 1, 20)
	require.NotContains(t, c.MustWeir("show", kept.id), "was not committed")

	r = <-told
	require.Equal(t, 3, r.Code, "%s%s", r.Stdout, r.Stderr)
	require.Contains(t, r.Stderr, "weir txn list")
}

// openUnlisted lets a job that commits nothing write the numbers 21 to 30 into a transaction that no completed checkpoint lists.
func openUnlisted(t *testing.T, c *harness.Cluster, j *leftover) (id string) {
	t.Helper()
	end := func() int64 {
		held := listTransactions(t, c, j.id).Held
		if len(held) == 0 {
			return 0
		}
		n, err := strconv.ParseInt(held[0].End, 10, 64)
		require.NoError(t, err)
		return n
	}
	// Few completed checkpoints wait for their commits; then there are no more.
	c.Produce(harness.Numbered(j.in, 1, 21, 25)...)
	last, since := "", time.Now()
	harness.Eventually(t, 20*time.Second, "no more checkpoints", func() error {
		if now := c.Job(j.id).Completed; now != last {
			last, since = now, time.Now()
		}
		if still := time.Since(since); still < 2*time.Second {
			return fmt.Errorf("checkpoint %s is %s old", last, still)
		}
		return nil
	})
	before := end()
	c.Produce(harness.Numbered(j.in, 1, 26, 30)...)
	harness.Eventually(t, 20*time.Second, "an open transaction", func() error {
		for _, x := range listTransactions(t, c, j.id).Transactions {
			if !x.Listed && x.State == "TRANSACTION_STATE_OPEN" {
				id = x.ID
			}
		}
		if n := end(); id == "" || n < before+5 {
			return fmt.Errorf("it is %q, and %d records are there", id, n-before)
		}
		return nil
	})
	return id
}
