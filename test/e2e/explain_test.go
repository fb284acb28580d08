package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// explanation is the part of `weir explain -o json` that the tests look at.
type explanation struct {
	State    string `json:"state"`
	Summary  string `json:"summary"`
	Findings []struct {
		Kind     string `json:"kind"`
		Text     string `json:"text"`
		Advice   string `json:"advice"`
		Blocking bool   `json:"blocking"`
		SinceMs  string `json:"sinceMs"`
	} `json:"findings"`
}

// explained waits until the first finding is of the kind and its text, for people too, holds every part.
func explained(t *testing.T, c *harness.Cluster, job, kind string, timeout time.Duration, parts ...string) explanation {
	t.Helper()
	var e explanation
	var text string
	harness.Eventually(t, timeout, "an explanation of kind "+kind, func() error {
		e = explanation{}
		if err := json.Unmarshal([]byte(c.MustWeir("explain", job, "-o", "json")), &e); err != nil {
			return err
		}
		text = c.MustWeir("explain", job)
		if len(e.Findings) == 0 || e.Findings[0].Kind != kind {
			return fmt.Errorf("it says:\n%s", text)
		}
		flat := strings.Join(strings.Fields(text), " ")
		for _, part := range parts {
			if !strings.Contains(e.Findings[0].Text, part) || !strings.Contains(flat, part) {
				return fmt.Errorf("%q is missing:\n%s", part, text)
			}
		}
		return nil
	})
	t.Logf("\n%s", text)
	if e.Findings[0].Blocking {
		waits := c.Job(job).WaitingFor
		t.Logf("short: %s", waits)
		require.NotEmpty(t, waits, "weir show says it in short")
	}
	return e
}

func TestExplainsMissingSlots(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 1})
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	id := c.Submit([]string{"-p", "4", "--detach"}, "--shape", "keyed", "--in", in, "--out", out)
	e := explained(t, c, id, "slots", 20*time.Second, "needs 4 slots, 2 free on 2 TaskManagers", "on tm1 has 1 of 1 slots free", "on tm2 has 1 of 1 slots free")
	require.Contains(t, e.Findings[0].Advice, "Start more TaskManagers")
	require.True(t, e.Findings[0].Blocking)
	for range 2 {
		_, err := c.AddTaskManager()
		require.NoError(t, err)
	}
	c.WaitState(id, "RUNNING", 30*time.Second)
	explained(t, c, id, "normal", 20*time.Second, "It runs normally", "records/s", "completed")
}

func TestExplainsASlowTask(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 2})
	in, out := c.Topic(2, nil), c.Topic(2, nil)
	id := c.Submit([]string{"-p", "2"}, "--shape", "slow", "--delay", "25s", "--in", in, "--out", out, "--interval", "500ms")
	c.Produce(harness.Numbered(in, 2, 1, 100)...)
	c.AwaitCommitted(out, 100, 30*time.Second)
	c.Produce(&kgo.Record{Topic: in, Key: []byte("slow"), Value: []byte("101")})
	e := explained(t, c, id, "checkpoint", 30*time.Second, "1 of 4 tasks has not acknowledged", "slow[", "on tm1 is processing records in slow", "at one batch for")
	require.True(t, e.Findings[0].Blocking)
	require.Contains(t, e.Findings[0].Advice, "SIGQUIT")
	since, err := strconv.ParseInt(e.Findings[0].SinceMs, 10, 64)
	require.NoError(t, err)
	require.Less(t, time.Since(time.UnixMilli(since)), time.Minute)
	require.Contains(t, e.Summary, "slow[")
}

func TestExplainsABrokerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	broker := kafkatest.StartFor(t, kafkatest.Config{})
	c := harness.StartWith(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1}, broker)
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	id := c.Submit(nil, "--shape", "keyed", "--in", in, "--out", out, "--interval", "500ms")
	c.Produce(harness.Numbered(in, 1, 1, 100)...)
	c.AwaitCommitted(out, 100, 30*time.Second)
	requireNoneOpen(t, c, id, out) // or its sink would be waiting for an answer as well
	require.NoError(t, broker.Pause())
	resumed := false
	t.Cleanup(func() {
		if !resumed {
			_ = broker.Resume()
		}
	})
	e := explained(t, c, id, "external", 30*time.Second, "in[0] on tm1 waits for Kafka at "+broker.Addr()+" to answer")
	require.Contains(t, e.Findings[0].Advice, "goes on by itself when it answers")

	// Its worker dies, and the next one does not get far.
	pid, _, err := c.WorkerOf()
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	explained(t, c, id, "prepare", 30*time.Second, "Attempt 2", "0 of 1 workers have prepared", "is opening in; it waits for Kafka at "+broker.Addr()+" to answer")
	require.NoError(t, broker.Resume())
	resumed = true
	explained(t, c, id, "normal", 30*time.Second, "It runs normally")
}

func TestExplainsAPartitionThatHoldsEventTimeBack(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	in, out := c.Topic(2, nil), c.Topic(1, nil)
	id := c.Submit(nil, "--shape", "windows", "--idle", "0s", "--in", in, "--out", out, "--interval", "500ms")
	base := time.Now().Add(-time.Hour)
	for n := range 10 {
		c.Produce(&kgo.Record{Topic: in, Partition: 0, Key: []byte("k"), Value: []byte(strconv.Itoa(n)), Timestamp: base.Add(time.Duration(n) * 5 * time.Second)})
	}
	e := explained(t, c, id, "watermark", 30*time.Second, "partition 1 of topic "+in, "read by in[0] on tm1", "held no new record for", "never left out")
	require.Contains(t, e.Findings[0].Advice, "WithIdleTimeout")
	c.Produce(&kgo.Record{Topic: in, Partition: 1, Key: []byte("k"), Value: []byte("other"), Timestamp: base.Add(20 * time.Second)})
	explained(t, c, id, "watermark", 30*time.Second, "partition 1 of topic "+in, "25s behind the furthest one")
	c.Produce(&kgo.Record{Topic: in, Partition: 1, Key: []byte("k"), Value: []byte("last"), Timestamp: base.Add(45 * time.Second)})
	explained(t, c, id, "normal", 30*time.Second, "It runs normally")
}

func TestExplainsAPauseAfterFailures(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	c.Produce(harness.Numbered(in, 1, 1, 1)...)
	id := c.Submit(nil, "--shape", "boom", "--in", in, "--out", out)
	c.WaitState(id, "RUNNING", 20*time.Second)
	boom := harness.Numbered(in, 1, 2, 2)
	boom[0].Value = []byte("boom")
	c.Produce(boom...)
	e := explained(t, c, id, "back-off", 40*time.Second, "It is in a pause after a failure", "begins in", "It has failed")
	require.Len(t, e.Findings, 2)
	require.Equal(t, "failure", e.Findings[1].Kind)
	require.Contains(t, e.Findings[1].Text, "boom")
	require.Contains(t, e.Findings[1].Text, "on tm1")
	require.Contains(t, e.Findings[1].Advice, "weir logs "+id+" --attempt")
	harness.Eventually(t, 20*time.Second, "weir show to name the cause", func() error {
		if w := c.Job(id).WaitingFor; !strings.Contains(w, "the next attempt, in") || !strings.Contains(w, "boom") {
			return errors.New(w)
		}
		return nil
	})
	c.MustWeir("cancel", id)
	explained(t, c, id, "ended", 20*time.Second, "It has ended: it is CANCELED")
}
