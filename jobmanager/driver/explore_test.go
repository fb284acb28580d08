package driver

import (
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// explore walks through everything that a scenario allows. Time stands still meanwhile, so that the same states are met every time.
func explore(t *testing.T, sc scenario, then func(x *explorer, f *finding, complete bool)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := newExplorer(t.Context(), dir, sc)
		f, complete := x.search()
		t.Logf("%d states of %d states of the leader, %d of a TaskManager and %d of the broker", len(x.states), len(x.leaders), len(x.machines), len(x.brokers))
		then(x, f, complete)
	})
}

// TestExploredProtocolKeepsItsPromises walks through every order of messages, failures and changes of leaders within the bounds of each
// scenario, with the driver, the coordinator, the state machine, the scheduler, the ledger and the pool of ids that the product runs.
// docs/design/exactly-once.md tells what is looked at and what is not. WEIR_EXPLORE=deep takes the large scenarios as well.
func TestExploredProtocolKeepsItsPromises(t *testing.T) {
	const light, normal, deep = 0, 1, 2
	size := normal
	switch {
	case os.Getenv("WEIR_EXPLORE") == "deep":
		size = deep
	case underRace || testing.Short():
		size = light
	}
	one, both, most := [parallelism]uint8{1, 0}, [parallelism]uint8{1, 1}, [parallelism]uint8{2, 1}
	for _, c := range []struct {
		name    string
		size    int
		records [parallelism]uint8
		budget  budget
		v1      bool
	}{
		{"nothing goes wrong", light, most, budget{}, false},
		{"a worker dies", light, one, budget{crash: 1}, false},
		{"a worker dies while two inputs flow", normal, both, budget{crash: 1}, false},
		{"two workers die", normal, one, budget{crash: 2}, false},
		{"the leader dies", light, one, budget{leader: 1}, false},
		{"the leader dies while two inputs flow", normal, both, budget{leader: 1}, false},
		{"two leaders die", normal, one, budget{leader: 2}, false},
		{"the leader and a worker die", normal, one, budget{leader: 1, crash: 1}, false},
		{"a connection breaks", light, one, budget{broken: 1}, false},
		{"a connection breaks and the leader dies", normal, one, budget{broken: 1, leader: 1}, false},
		{"a connection breaks and a worker dies", normal, one, budget{broken: 1, crash: 1}, false},
		{"a TaskManager is given up and lives", normal, one, budget{lost: 1}, false},
		{"a TaskManager is given up and lives while two inputs flow", deep, both, budget{lost: 1}, false},
		{"a TaskManager is given up and lives, a worker dies", deep, one, budget{lost: 1, crash: 1}, false},
		{"a TaskManager is given up and lives, the leader dies", deep, one, budget{lost: 1, leader: 1}, false},
		{"a TaskManager is given up and lives, another connection breaks", deep, one, budget{lost: 1, broken: 1}, false},
		{"a snapshot cannot be stored", light, both, budget{decline: 1}, false},
		{"two snapshots cannot be stored", normal, both, budget{decline: 2}, false},
		{"a snapshot cannot be stored and a worker dies", normal, one, budget{decline: 1, crash: 1}, false},
		{"the log does not tell at first", light, both, budget{unknown: 1}, false},
		{"the log does not tell at first and a worker dies", normal, one, budget{unknown: 1, crash: 1}, false},
		{"a timer is early", light, both, budget{early: 1}, false},
		{"a timer is early and a worker dies", normal, one, budget{early: 1, crash: 1}, false},
		{"the job is canceled", light, both, budget{cancel: 1}, false},
		{"the job is canceled and a worker dies", normal, one, budget{cancel: 1, crash: 1}, false},
		{"the job is canceled and the leader dies", normal, one, budget{cancel: 1, leader: 1}, false},
		{"the job is canceled and a TaskManager is given up and lives", normal, one, budget{cancel: 1, lost: 1}, false},
		{"a request to commit comes twice", normal, [parallelism]uint8{4, 0}, budget{copied: 1}, false},
		{"a request to commit comes twice, transactions v1", normal, [parallelism]uint8{4, 0}, budget{copied: 1}, true},
		{"a request to commit comes twice and a worker dies, transactions v1", normal, [parallelism]uint8{2, 0}, budget{copied: 1, crash: 1}, true},
		{"two inputs flow, the leader and a worker die", deep, both, budget{leader: 1, crash: 1}, false},
		{"the leader dies, the log does not tell at first, a worker dies", deep, one, budget{leader: 1, unknown: 1, crash: 1}, false},
		{"three workers die", deep, one, budget{crash: 3}, false},
	} {
		if c.size > size {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			explore(t, scenario{records: c.records, budget: c.budget, v1: c.v1}, func(x *explorer, f *finding, complete bool) {
				if f != nil {
					t.Fatal(f.tell(x))
				}
				require.True(t, complete)
			})
		})
	}
}

// TestExplorationFindsWhatBreaksThePromises puts one fault after the other into the protocol. The shortest way to a broken promise is
// found first, so that its length tells whether the exploration still looks at the same things.
func TestExplorationFindsWhatBreaksThePromises(t *testing.T) {
	skipUnderRace(t)
	one, both := [parallelism]uint8{1, 0}, [parallelism]uint8{1, 1}
	for _, c := range []struct {
		name     string
		mutation mutation
		records  [parallelism]uint8
		budget   budget
		v1       bool
		says     string
		steps    int
	}{
		{"commit before the log entry", commitFirst, both, budget{}, false, "no completed checkpoint lists it", 15},
		{"pending transactions left out of the snapshot", forgetPending, both, budget{decline: 1}, false, "no completed checkpoint lists it", 20},
		{"fenced before committed", fenceFirst, both, budget{crash: 1}, false, "was aborted, and a completed checkpoint lists it", 19},
		{"ids free at the commit", releaseAtCommit, [parallelism]uint8{3, 0}, budget{}, false, "is used again", 21},
		{"a notice for one checkpoint only", onlyNewest, both, budget{decline: 1}, false, "stay open for ever", 23},
		{"ids of transactions v1 used again as they are", noRenewal, [parallelism]uint8{4, 0}, budget{copied: 1}, true, "no completed checkpoint lists it", 29},
		{"former attempts forgotten", forgetUnfenced, both, budget{crash: 1}, false, "stay open for ever", 33},
		{"committed as soon as complete", settleAtOnce, both, budget{crash: 1}, false, "was aborted, and a completed checkpoint lists it", 22},
		{"checkpoint ids used again by the next leader", reuseIDs, both, budget{leader: 1}, false, "for ever", 19},
		{"reports of former attempts heard", staleReports, one, budget{crash: 1, lost: 1}, false, "again and again", 23},
	} {
		t.Run(c.name, func(t *testing.T) {
			explore(t, scenario{records: c.records, budget: c.budget, v1: c.v1, mutation: c.mutation}, func(x *explorer, f *finding, _ bool) {
				require.NotNil(t, f, "the fault is not found")
				t.Log(f.tell(x))
				require.Contains(t, string(f.v), c.says)
				require.Len(t, f.steps, c.steps)
			})
		})
	}
}

// TestExplorationShowsWhatIsLeftToTheBrokersTimeout is about a known limit: a worker that the leader has given up initialises a spare id
// after its successor has fenced those that existed, and begins a transaction with it. Until the job's next attempt fences it, only the
// broker's timeout ends that transaction.
func TestExplorationShowsWhatIsLeftToTheBrokersTimeout(t *testing.T) {
	skipUnderRace(t)
	explore(t, scenario{records: [parallelism]uint8{2, 0}, budget: budget{lost: 1}, slow: true}, func(x *explorer, f *finding, _ bool) {
		require.NotNil(t, f, "the limit is none any more: take it out of docs/design/exactly-once.md")
		require.Equal(t, violation("1 transactions stay open for ever"), f.v, f.tell(x))
	})
}

func skipUnderRace(t *testing.T) {
	t.Helper()
	if underRace {
		t.Skip("takes long under the race detector, and runs without it in make test-explore")
	}
}
