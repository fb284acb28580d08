package driver

import (
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// The exploration walks through every order of events of a small cluster, up to a bound. What decides in the product runs as it is: the
// driver of a job, the checkpoint coordinator, the state machine behind the log, the scheduler and the restart policy; the sinks' ledger,
// the pool of transactional ids and their names, and the distribution of what is restored. Around them are models of what does I/O:
//
//   - explore_log_test.go: the log and checkpoint storage;
//   - explore_leader_test.go, explore_driver_test.go: a leader, and what it is told;
//   - explore_worker_test.go, explore_restore_test.go, explore_sink_test.go: TaskManagers, workers, tasks with a transactional sink;
//   - explore_broker_test.go: a broker, and the promises that it sees broken.
//
// explore_steps_test.go says what can happen in a state, explore_scenario_test.go what may go wrong, and how often. The search
// (explore_search_test.go) copies a state, takes a step, and knows equal states again (explore_copy_test.go, explore_key_test.go); a
// broken promise is told as a story (explore_story_test.go). docs/design/exactly-once.md tells what is not looked at.

// explore walks through everything that a scenario allows. Time stands still meanwhile, so that the same states are met every time.
func explore(t *testing.T, sc scenario, then func(x *explorer, f *finding, complete bool)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := newExplorer(t.Context(), dir, sc)
		f, complete := x.search()
		t.Logf("%d states of %d states of the leader, %d of a TaskManager and %d of the broker", len(x.states), len(x.leaders), len(x.machines.list), len(x.brokers.list))
		then(x, f, complete)
	})
}

// leastStates is how many states TestExploredProtocolKeepsItsPromises meets at the least; docs/design/exactly-once.md says so.
const leastStates = 5_000_000

// mostDeepStates is after how many states, the nearest ones first, a deep scenario is left as it is; it keeps memory below some 8 GB.
const mostDeepStates = 10_000_000

// Sizes of scenarios: the light ones run under the race detector too, the deep ones with WEIR_EXPLORE=deep only.
const (
	light = iota
	normal
	deep
)

// TestExploredProtocolKeepsItsPromises walks through every order of messages, failures and changes of leaders within the bounds of each
// scenario.
func TestExploredProtocolKeepsItsPromises(t *testing.T) {
	size := normal
	switch {
	case os.Getenv("WEIR_EXPLORE") == "deep":
		size = deep
	case underRace || testing.Short():
		size = light
	}
	two, one, both := []uint8{2, 0}, []uint8{1, 0}, []uint8{1, 1}
	var met atomic.Int64
	var left atomic.Int32 // scenarios that a filter has kept from running
	t.Run("scenarios", func(t *testing.T) {
		for _, c := range []struct {
			name string
			size int
			sc   scenario
		}{
			{"any two things go wrong, two inputs", deep, scenario{records: both, budget: anyOf(2)}},
			{"any two things go wrong, three tasks", deep, scenario{records: []uint8{1, 0, 0}, budget: anyOf(2)}},
			{"anything goes wrong, two inputs of three records", deep, scenario{records: []uint8{2, 1}, budget: anyOf(1)}},
			{"anything goes wrong, three inputs", deep, scenario{records: []uint8{1, 1, 1}, budget: anyOf(1)}},
			{"the broker gives up a transaction and anything goes wrong, two records", deep, scenario{records: two, budget: anyOf(1).and(1)}},
			{"the broker gives up a transaction and anything goes wrong, two records, durable", deep, scenario{records: two, budget: anyOf(1).and(1), durable: true}},

			{"any two things go wrong", normal, scenario{records: one, budget: anyOf(2)}},
			{"anything goes wrong, two inputs", normal, scenario{records: both, budget: anyOf(1)}},
			{"anything goes wrong, three tasks", normal, scenario{records: []uint8{1, 0, 1}, budget: anyOf(1)}},
			{"a TaskManager is given up and lives, ids are initialised late", normal, scenario{records: two, budget: budget{lost: 1}, slow: true}},
			{"the broker gives up two transactions and anything goes wrong, durable", normal, scenario{records: one, budget: anyOf(1).and(2), durable: true}},
			{"the broker gives up a transaction and anything goes wrong", normal, scenario{records: one, budget: anyOf(1).and(1)}},
			{"the broker gives up a transaction, a worker or the leader dies, two records, durable", normal, scenario{records: two, budget: budget{crash: 1, leader: 1, total: 1}.and(1), durable: true}},
			{"a request to commit comes twice", normal, scenario{records: []uint8{4, 0}, budget: budget{copied: 1}}},
			{"a request to commit comes twice, transactions v1", normal, scenario{records: []uint8{4, 0}, budget: budget{copied: 1}, v1: true}},
			{"a request to commit comes twice and a worker dies, transactions v1", normal, scenario{records: two, budget: budget{copied: 1, crash: 1}, v1: true}},

			{"nothing goes wrong", light, scenario{records: []uint8{2, 1}}},
			{"nothing goes wrong, three tasks", light, scenario{records: []uint8{1, 0, 1}}},
			{"a worker dies", light, scenario{records: one, budget: budget{crash: 1}}},
			{"the leader dies", light, scenario{records: one, budget: budget{leader: 1}}},
			{"a connection breaks", light, scenario{records: one, budget: budget{broken: 1}}},
			{"a snapshot cannot be stored", light, scenario{records: both, budget: budget{decline: 1}}},
			{"the log does not tell at first", light, scenario{records: both, budget: budget{unknown: 1}}},
			{"a timer is early", light, scenario{records: both, budget: budget{early: 1}}},
			{"the job is canceled", light, scenario{records: both, budget: budget{cancel: 1}}},
			{"the broker gives up a transaction", light, scenario{records: two, budget: budget{}.and(1)}},
			{"the broker gives up a transaction, durable", light, scenario{records: two, budget: budget{}.and(1), durable: true}},
			{"a snapshot cannot be stored and the broker gives up a transaction, durable", light, scenario{records: two, budget: budget{decline: 1}.and(1), durable: true}},
		} {
			if c.size > size {
				continue
			}
			if c.size == deep {
				c.sc.most = mostDeepStates
			}
			left.Add(1)
			t.Run(c.name, func(t *testing.T) {
				left.Add(-1)
				t.Parallel()
				explore(t, c.sc, func(x *explorer, f *finding, complete bool) {
					met.Add(int64(len(x.states)))
					if f != nil {
						t.Fatal(f.tell(x))
					}
					if c.size < deep {
						require.True(t, complete)
					}
				})
			})
		}
	})
	t.Logf("%d states in all", met.Load())
	if size > light && left.Load() == 0 && !t.Failed() {
		require.GreaterOrEqual(t, met.Load(), int64(leastStates))
	}
}

// TestExplorationFindsWhatBreaksThePromises puts one fault after the other into the protocol. The shortest way to a broken promise is
// found first, so that its length tells whether the exploration still looks at the same things.
func TestExplorationFindsWhatBreaksThePromises(t *testing.T) {
	if underRace {
		t.Skip("takes long under the race detector, and runs without it in make test-explore")
	}
	one, both := []uint8{1, 0}, []uint8{1, 1}
	for _, c := range []struct {
		name  string
		sc    scenario
		says  string
		steps int
	}{
		{"commit before the log entry", scenario{mutation: commitFirst, records: both}, "no completed checkpoint lists it", 15},
		{"pending transactions left out of the snapshot", scenario{mutation: forgetPending, records: both, budget: budget{decline: 1}}, "no completed checkpoint lists it", 20},
		{"a third task left out of the checkpoint", scenario{mutation: forgetThird, records: []uint8{0, 0, 1}}, "no completed checkpoint lists it", 18},
		{"fenced before committed", scenario{mutation: fenceFirst, records: both, budget: budget{crash: 1}}, "was aborted, and a completed checkpoint lists it", 19},
		{"ids free at the commit", scenario{mutation: releaseAtCommit, records: []uint8{3, 0}}, "is used again", 21},
		{"a notice for one checkpoint only", scenario{mutation: onlyNewest, records: both, budget: budget{decline: 1}}, "stay open for ever", 23},
		{"ids of transactions v1 used again as they are", scenario{mutation: noRenewal, records: []uint8{4, 0}, budget: budget{copied: 1}, v1: true}, "no completed checkpoint lists it", 29},
		{"former attempts forgotten", scenario{mutation: forgetUnfenced, records: both, budget: budget{crash: 1}}, "stay open for ever", 33},
		{"former attempts fenced once only", scenario{mutation: fenceOnce, records: []uint8{2, 0}, budget: budget{lost: 1}, slow: true}, "stay open for ever", 37},
		{"committed as soon as complete", scenario{mutation: settleAtOnce, records: both, budget: budget{crash: 1}}, "was aborted, and a completed checkpoint lists it", 22},
		{"checkpoint ids used again by the next leader", scenario{mutation: reuseIDs, records: both, budget: budget{leader: 1}}, "for ever", 19},
		{"reports of former attempts heard", scenario{mutation: staleReports, records: one, budget: budget{crash: 1, lost: 1}}, "again and again", 23},
		{"an answer that means loss taken for success", scenario{mutation: swallowLoss, records: one, budget: budget{}.and(1)}, "lost for ever", 20},
		{"a loss that the settling attempt keeps to itself", scenario{mutation: forgetLoss, records: one, budget: budget{}.and(1)}, "lost for ever", 33},
		{"a replacement committed before its log entry", scenario{mutation: replaceFirst, records: one, budget: budget{}.and(1), durable: true}, "no completed checkpoint lists it", 24},
		{"a replacement behind what was prepared later", scenario{mutation: replaceOnlyLost, records: []uint8{2, 0}, budget: budget{decline: 1}.and(1), durable: true}, "sees record 2 after record 0", 30},
		{"a replacement that the next attempt does not know", scenario{mutation: forgetReplacement, records: one, budget: budget{crash: 1}.and(1), durable: true}, "was aborted, and a completed checkpoint lists it", 38},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			explore(t, c.sc, func(x *explorer, f *finding, _ bool) {
				require.NotNil(t, f, "the fault is not found")
				t.Log(f.tell(x))
				require.Contains(t, string(f.v), c.says)
				require.Len(t, f.steps, c.steps)
			})
		})
	}
}
