package robustness_test

import (
	"cmp"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

const (
	defaultDuration = 30 * time.Second
	rate            = 2000 // orders per second
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// settings reads how long to run and the seed from the environment.
func settings(t *testing.T) (time.Duration, uint64) {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv("WEIR_ROBUSTNESS_DURATION"), defaultDuration.String()))
	require.NoError(t, err)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("WEIR_ROBUSTNESS_SEED"), "0"), 10, 64)
	require.NoError(t, err)
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	return d, seed
}

func TestRobustness(t *testing.T) {
	duration, seed := settings(t)
	tls := seed%2 == 1
	t.Logf("seed %d, %s, TLS %v: repeat with make test-robustness DURATION=%s SEED=%d", seed, duration, tls, duration, seed)

	proxy, err := kafkatest.NewProxy()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	broker := kafkatest.StartFor(t, kafkatest.Config{Advertise: proxy.Addr()})
	proxy.SetTarget(broker.Listen())

	network := harness.NewNetwork(t, 3)
	c := harness.StartWith(t, localcluster.Config{
		JobManagers: 3, TaskManagers: 3, Slots: 2, TLS: tls, ConfigureJobManager: network.Configure,
	}, broker)
	network.Of(c)
	run := c.StartOrders(uint64(duration.Seconds())*rate, rate)
	id := c.Submit([]string{"-p", "3"}, run.Args("--max-restarts", "1000000")...)
	c.WaitState(id, "RUNNING", 30*time.Second)
	run.AwaitOutput(time.Now(), 30*time.Second)

	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), c: c, broker: broker, proxy: proxy, network: network, job: id, run: run}
	w.checkpoints = c.WatchCheckpoints(id)
	begin, count := time.Now(), 0
	for time.Since(begin) < duration {
		w.sleep(w.upTo(4 * time.Second))
		f := w.next()
		t.Logf("%6.1fs %s", time.Since(begin).Seconds(), f.name)
		f.do(w)
		count++
	}
	run.RequireExactlyOnce(2 * time.Minute)
	job := c.WaitState(id, "RUNNING", time.Minute)
	c.MustWeir("cancel", id)
	require.Equal(t, "JOB_STATE_CANCELED", c.Job(id).State)
	require.NoError(t, broker.WaitNoOpenTransactions(t.Context(), run.Topics.Totals))
	t.Logf("%d faults, %s restarts, %d orders: nothing lost, nothing repeated", count, job.Restarts, run.Produced.Load())
}
