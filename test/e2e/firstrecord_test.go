package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/client"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// A job whose binary the cluster has, as it had it run before, gets to its first record soon: a record that waits in the input is in the
// output, at least once, within a second or so of the start of the command that submits the job. WEIR_FIRST_RECORD_ROUNDS says how often
// that is measured; the bound is for machines that are busy.
func TestFirstRecordComesSoonOnAWarmCluster(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 2, Slots: 2})
	in := c.Topic(1, nil)
	c.Produce(harness.Numbered(in, 1, 1, 1)...)
	var all []time.Duration
	for round := range numberOr(t, "WEIR_FIRST_RECORD_ROUNDS", "3") + 1 {
		out := c.Topic(1, nil)
		client, err := c.Broker.Client(kgo.ConsumeTopics(out), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		require.NoError(t, err)
		seen := make(chan time.Time, 1)
		go func() {
			for fetches := client.PollFetches(t.Context()); !fetches.IsClientClosed(); fetches = client.PollFetches(t.Context()) {
				if !fetches.Empty() {
					seen <- time.Now()
					return
				}
			}
		}()
		begun := time.Now()
		id := c.Submit([]string{"--name", fmt.Sprint("first-record-", round)}, "--shape", "pass", "--in", in, "--out", out, "--guarantee", "at-least-once")
		var visible time.Time
		select {
		case visible = <-seen:
		case <-time.After(time.Minute):
			t.Fatalf("no output after a minute: %+v", c.Job(id))
		}
		client.Close()
		what := "cold"
		if round > 0 {
			what = "warm"
			all = append(all, visible.Sub(begun))
		}
		t.Logf("%s: first record visible after %s: %s", what, visible.Sub(begun).Round(time.Millisecond), startPhases(t, c, id, begun))
		c.MustWeir("cancel", id)
	}
	slices.Sort(all)
	t.Logf("submit to first record on a warm cluster: median %s, at most %s", all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	t.Log("of the command, the rest being the plan and the log: " + commandPhases(t, c))
	require.Less(t, all[0], 5*time.Second)
}

// commandPhases tells what the parts of a command take that need no job: its process, the hash of the binary, and to find the leader and
// learn from it that the cluster has the binary.
func commandPhases(t *testing.T, c *harness.Cluster) string {
	t.Helper()
	begun := time.Now()
	c.MustWeir("version")
	process := time.Since(begun)
	begun = time.Now()
	f, err := os.Open(c.Binaries.Job)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(h, f)
	require.NoError(t, err)
	hashing := time.Since(begun)
	cl := client.New(c.ClientConfig())
	defer cl.Close()
	begun = time.Now()
	require.NoError(t, cl.Upload(t.Context(), f, hex.EncodeToString(h.Sum(nil)), size))
	return fmt.Sprintf("process %s, hash %s, upload %s", process.Round(time.Millisecond), hashing.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
}

// startPhases tells what the time between the command and the visible record went to: until the job is in the log, that is the command
// itself, the question whether the binary is there, the plan; then the phases of the start as its leader saw them.
func startPhases(t *testing.T, c *harness.Cluster, id string, begun time.Time) string {
	t.Helper()
	var j struct {
		CreatedAtMs string   `json:"createdAtMs"`
		Restore     restored `json:"restore"`
	}
	harness.Eventually(t, 10*time.Second, "the start to be whole", func() error {
		require.NoError(t, json.Unmarshal([]byte(c.MustWeir("show", id, "-o", "json")), &j))
		if !j.Restore.Complete {
			return fmt.Errorf("it is at %v", j.Restore.Phases)
		}
		return nil
	})
	ms, err := strconv.ParseInt(j.CreatedAtMs, 10, 64)
	require.NoError(t, err)
	phases := []string{"command and plan " + time.UnixMilli(ms).Sub(begun).Round(time.Millisecond).String()}
	for _, p := range j.Restore.Phases {
		phases = append(phases, p.Name+" "+p.took(t).Round(time.Millisecond).String())
	}
	return strings.Join(phases, ", ")
}
