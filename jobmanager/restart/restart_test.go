package restart_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/jobmanager/restart"
	"pgregory.net/rapid"
)

const (
	passing  = workerv1.FailureClass_FAILURE_CLASS_RESTART
	fatal    = workerv1.FailureClass_FAILURE_CLASS_FATAL
	dataLoss = workerv1.FailureClass_FAILURE_CLASS_DATA_LOSS
	silence  = workerv1.FailureClass_FAILURE_CLASS_UNAVAILABLE
	storage  = workerv1.FailureClass_FAILURE_CLASS_STORAGE
)

var (
	now    = time.UnixMilli(1_800_000_000_000)
	policy = graph.RestartPolicy{
		InitialDelay: time.Second, MaxDelay: 10 * time.Second, Multiplier: 2, MaxRestarts: 5, Window: time.Minute,
	}
)

// counted returns n counted failures, one a second, the last one second ago.
func counted(n int) []restart.Former {
	var h []restart.Former
	for i := range n {
		h = append(h, restart.Former{At: now.Add(-time.Duration(n-i) * time.Second), Counted: true})
	}
	return h
}

func TestFirstRestartHasNoDelay(t *testing.T) {
	require.Equal(t, restart.Decision{Action: restart.Restart, Counted: true}, restart.Decide(policy, nil, passing, false, now, 0.9))
}

func TestUnspecifiedClassIsPassing(t *testing.T) {
	d := restart.Decide(policy, nil, workerv1.FailureClass_FAILURE_CLASS_UNSPECIFIED, false, now, 0)
	require.Equal(t, restart.Restart, d.Action)
	require.True(t, d.Counted)
}

func TestDelayGrowsExponentiallyToItsMaximum(t *testing.T) {
	var least, most []time.Duration
	generous := policy
	generous.MaxRestarts = 100
	for n := 1; n <= 6; n++ {
		least = append(least, restart.Decide(generous, counted(n), passing, false, now, 0).Delay)
		most = append(most, restart.Decide(generous, counted(n), passing, false, now, 1).Delay)
	}
	s := time.Second
	require.Equal(t, []time.Duration{s / 2, s, 2 * s, 4 * s, 5 * s, 5 * s}, least)
	require.Equal(t, []time.Duration{s, 2 * s, 4 * s, 8 * s, 10 * s, 10 * s}, most)
}

func TestBudgetIsUsedUp(t *testing.T) {
	require.Equal(t, restart.Restart, restart.Decide(policy, counted(4), passing, false, now, 0).Action)
	d := restart.Decide(policy, counted(5), passing, false, now, 0)
	require.Equal(t, restart.Fail, d.Action)
	require.Contains(t, d.Reason, "5 times within 1m0s")
}

func TestFailuresOutsideTheWindowAreForgotten(t *testing.T) {
	old := counted(5)
	for i := range old {
		old[i].At = old[i].At.Add(-time.Minute)
	}
	require.Equal(t, restart.Decision{Action: restart.Restart, Counted: true}, restart.Decide(policy, old, passing, false, now, 0))
}

func TestOnlyWhatTheWindowHoldsIsRemembered(t *testing.T) {
	history := counted(5)
	require.Len(t, restart.Remember(policy, history, restart.Former{At: now}), 6)
	history = restart.Remember(policy, counted(5), restart.Former{At: now.Add(policy.Window - 3*time.Second)})
	require.Len(t, history, 4, "those of the last three seconds, and the new one")
}

func TestFailuresOutsideOfTheJobDoNotUseUpTheBudget(t *testing.T) {
	var d restart.Decision
	for _, class := range []workerv1.FailureClass{storage, silence} {
		d = restart.Decide(policy, counted(5), class, false, now, 1)
		require.Equal(t, restart.Decision{Action: restart.Restart, Delay: 10 * time.Second}, d)
	}

	uncounted := counted(10)
	for i := range uncounted {
		uncounted[i].Counted = false
	}
	d = restart.Decide(policy, uncounted, passing, false, now, 1)
	require.Equal(t, restart.Decision{Action: restart.Restart, Delay: 10 * time.Second, Counted: true}, d)
}

func TestFatalFails(t *testing.T) {
	require.Equal(t, restart.Fail, restart.Decide(policy, nil, fatal, false, now, 0).Action)
}

func TestDataLossStops(t *testing.T) {
	d := restart.Decide(policy, nil, dataLoss, false, now, 0)
	require.Equal(t, restart.Stop, d.Action)
	require.NotEmpty(t, d.Reason)
}

func TestNoRestartsAllowed(t *testing.T) {
	for _, class := range []workerv1.FailureClass{passing, storage} {
		require.Equal(t, restart.Fail, restart.Decide(graph.RestartPolicy{Window: time.Minute}, nil, class, false, now, 0).Action)
	}
}

func TestPolicyOfGraph(t *testing.T) {
	g := &jobv1.Graph{Restarts: &jobv1.RestartPolicy{
		InitialDelayMs: 1000, MaxDelayMs: 10000, Multiplier: 2, MaxRestarts: 5, WindowMs: 60000,
	}}
	require.Equal(t, policy, restart.PolicyOf(g))
	g.Restarts.WindowMs = math.MaxUint64
	require.Positive(t, restart.PolicyOf(g).Window)
}

func TestDelayIsAlwaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := graph.RestartPolicy{
			InitialDelay: time.Duration(rapid.Int64().Draw(t, "initial")),
			MaxDelay:     time.Duration(rapid.Int64().Draw(t, "max")),
			Multiplier:   rapid.Float64().Draw(t, "multiplier"),
			MaxRestarts:  rapid.IntRange(1, 1000).Draw(t, "restarts"),
			Window:       time.Minute,
		}
		n := rapid.IntRange(0, 50).Draw(t, "n")
		d := restart.Decide(p, counted(n), passing, false, now, rapid.Float64Range(0, 1).Draw(t, "random"))
		if d.Action == restart.Fail {
			require.GreaterOrEqual(t, n, p.MaxRestarts)
			return
		}
		require.GreaterOrEqual(t, d.Delay, time.Duration(0))
		require.LessOrEqual(t, d.Delay, max(p.MaxDelay, 0))
		if n == 0 {
			require.Zero(t, d.Delay)
		}
	})
}

func TestLossOfATaskManagerIsNotTheJobsFault(t *testing.T) {
	require.Equal(t, restart.Decision{Action: restart.Restart}, restart.Decide(policy, counted(5), passing, true, now, 1), "the budget is used up by others")

	var hosts []restart.Former
	for i := range 20 {
		hosts = append(hosts, restart.Former{At: now.Add(time.Duration(i-21) * 2 * time.Second), Host: true})
	}
	require.Equal(t, restart.Decision{Action: restart.Restart}, restart.Decide(policy, hosts, passing, true, now, 1), "nor do they add up")
	require.Equal(t, restart.Decision{Action: restart.Restart, Counted: true}, restart.Decide(policy, hosts, passing, false, now, 1), "for the job's own failures either")

	justNow := []restart.Former{{At: now.Add(-time.Millisecond), Host: true}}
	require.Equal(t, policy.InitialDelay, restart.Decide(policy, justNow, passing, true, now, 1).Delay, "a TaskManager that comes and goes is not chased")
}
