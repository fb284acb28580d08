package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// A worker is killed with much state, of which its machine has copies: they are opened and not read, so that the first record does not
// wait for longer the more there is. WEIR_RESTORE_KEYS says how many keys; with it the time is judged.
func TestRestoreDoesNotDependOnTheSizeOfState(t *testing.T) {
	keys, judged := numberOr(t, "WEIR_RESTORE_KEYS", "50000"), os.Getenv("WEIR_RESTORE_KEYS") != ""
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	id := c.Submit([]string{"-p", "1"}, "--shape", "hoard", "--in", in, "--out", out)
	batch := make([]*kgo.Record, 0, 20_000)
	for n := range keys {
		value := fmt.Sprintf("%d %s", n, strings.Repeat("v", 85))
		batch = append(batch, &kgo.Record{Topic: in, Partition: int32(n % partitions), Key: fmt.Appendf(nil, "key-%d", n), Value: []byte(value)})
		if len(batch) == cap(batch) || n == keys-1 {
			c.Produce(batch...)
			batch = batch[:0]
		}
	}
	reader := readCommitted(t, c, out)
	ticks := tick(t, c, in)
	harness.Eventually(t, 2*time.Minute+time.Duration(keys/20_000)*time.Second, "the state to be in a checkpoint", func() error {
		if n := totalBytes(t, c, id); n < keys*90 {
			return fmt.Errorf("the last checkpoint has %d bytes", n)
		}
		return nil
	})
	for range 3 {
		reader.next(t, time.Now())
		attempt := c.Job(id).Attempt
		stall := harness.WatchStalls(t)
		pids := c.WorkersOf(out)
		require.Len(t, pids, 1)
		require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
		var r restored
		harness.Eventually(t, time.Minute, "the first record of the next attempt", func() error {
			if r = lastStart(t, c, id); !r.Complete || r.Attempt == attempt {
				return fmt.Errorf("attempt %s is at %v", r.Attempt, r.Phases)
			}
			return nil
		})
		var after time.Duration
		names := map[string]bool{}
		for _, p := range r.Phases {
			names[p.Name] = true
			if p.Name != "schedule" {
				after += p.took(t)
			}
		}
		t.Logf("%d keys, %d bytes: first record %s after redeployment: %v, longest stall of the machine %s", keys, totalBytes(t, c, id), after, r.Phases, stall())
		for _, name := range []string{"schedule", "launch", "plan", "read", "open", "fence", "connect", "first record"} {
			require.True(t, names[name], "phase %s", name)
		}
		require.Contains(t, c.MustWeir("show", id), "to the first record: schedule ")
		if judged {
			require.Less(t, after, time.Second+stall())
		}
	}
	ticks.stop()
	reader.requireEach(t, ticks)
	c.MustWeir("cancel", id)
	requireNothingLeft(t, c, out)
}

// restored is the last start of a job, as weir show -o json prints it.
type restored struct {
	Attempt  string  `json:"attempt"`
	Complete bool    `json:"complete"`
	Phases   []phase `json:"phases"`
}

type phase struct {
	Name       string `json:"name"`
	DurationUs string `json:"durationUs"`
}

func (p phase) took(t *testing.T) time.Duration {
	us, err := strconv.ParseInt(orZero(p.DurationUs), 10, 64)
	require.NoError(t, err)
	return time.Duration(us) * time.Microsecond
}

func (p phase) String() string { return p.Name + " " + orZero(p.DurationUs) + "us" }

func lastStart(t *testing.T, c *harness.Cluster, id string) restored {
	t.Helper()
	var j struct {
		Restore restored `json:"restore"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.MustWeir("show", id, "-o", "json")), &j))
	return j.Restore
}
