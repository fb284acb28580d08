package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/jobmanager/scheduler"
)

func follows(id string, most int) scheduler.Claim {
	return scheduler.Claim{ID: id, Auto: true, Most: most}
}

func TestShares(t *testing.T) {
	holds := func(slots int) scheduler.Claim { return scheduler.Claim{ID: "fixed", Slots: slots, Holds: true} }
	waits := func(slots int) scheduler.Claim { return scheduler.Claim{ID: "new", Slots: slots} }
	for _, c := range []struct {
		name   string
		total  int
		claims []scheduler.Claim
		want   map[string]int
	}{
		{"no slots", 0, []scheduler.Claim{follows("a", 9)}, map[string]int{}},
		{"alone", 6, []scheduler.Claim{follows("a", 9)}, map[string]int{"a": 6}},
		{"up to the maximum parallelism", 6, []scheduler.Claim{follows("a", 4)}, map[string]int{"a": 4}},
		{"beside a job that has its own", 6, []scheduler.Claim{holds(2), follows("a", 9)}, map[string]int{"a": 4}},
		{"in equal parts, the older one first", 5, []scheduler.Claim{follows("a", 9), follows("b", 9)}, map[string]int{"a": 3, "b": 2}},
		{"what one cannot take is the other's", 8, []scheduler.Claim{follows("a", 2), follows("b", 9)}, map[string]int{"a": 2, "b": 6}},
		{"room for a job that waits", 6, []scheduler.Claim{follows("a", 9), waits(4)}, map[string]int{"a": 2}},
		{"no room for one that cannot have enough", 6, []scheduler.Claim{follows("a", 9), waits(6)}, map[string]int{"a": 6}},
		{"more auto jobs than slots", 1, []scheduler.Claim{follows("a", 9), follows("b", 9)}, map[string]int{"a": 1}},
		{"others hold more than there is", 2, []scheduler.Claim{holds(4), follows("a", 9)}, map[string]int{}},
	} {
		require.Equal(t, c.want, scheduler.Shares(c.total, c.claims), c.name)
	}
}

// Jobs that go to their shares change no share, and never want more than there is.
func TestSharesStayWhenTheyAreTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(0, 20).Draw(t, "total")
		var claims []scheduler.Claim
		for i := range rapid.IntRange(0, 6).Draw(t, "jobs") {
			id := string(rune('a' + i))
			if rapid.Bool().Draw(t, "auto") {
				claims = append(claims, follows(id, rapid.IntRange(1, 12).Draw(t, "most")))
			} else {
				claims = append(claims, scheduler.Claim{ID: id, Slots: rapid.IntRange(1, 8).Draw(t, "slots")})
			}
		}
		shares := scheduler.Shares(total, claims)
		left := total
		for _, c := range claims {
			left -= shares[c.ID]
			require.LessOrEqual(t, shares[c.ID], c.Most)
		}
		require.GreaterOrEqual(t, left, 0)
		for i := range claims { // those that wait get what was left for them, in their order
			if c := &claims[i]; !c.Auto && c.Slots <= left {
				c.Holds = true
				left -= c.Slots
			}
		}
		require.Equal(t, shares, scheduler.Shares(total, claims))
	})
}

func TestFollower(t *testing.T) {
	type step struct {
		at             int // seconds
		current, share int
		waits          bool
		want           int
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"up after the settling time", []step{{0, 2, 4, false, 0}, {9, 2, 4, false, 0}, {10, 2, 4, false, 4}}},
		{"a share that changes begins anew", []step{{0, 2, 4, false, 0}, {9, 2, 6, false, 0}, {18, 2, 6, false, 0}, {19, 2, 6, false, 6}}},
		{"one that comes and goes is not followed", []step{{0, 2, 2, false, 0}, {20, 2, 4, false, 0}, {25, 2, 2, false, 0}, {29, 2, 4, false, 0}, {38, 2, 4, false, 0}}},
		{"down for others after the settling time", []step{{0, 4, 3, false, 0}, {10, 4, 3, false, 3}}},
		{"down a moment after slots are lost", []step{{0, 4, 4, false, 0}, {1, 4, 3, true, 0}, {2, 4, 3, true, 0}, {3, 4, 3, true, 3}}},
		{"slots that come back are waited for", []step{{0, 4, 4, false, 0}, {1, 4, 3, true, 0}, {2, 4, 4, true, 0}, {30, 4, 4, false, 0}}},
		{"slots that are lost twice", []step{{0, 4, 3, true, 0}, {1, 4, 2, true, 0}, {2, 4, 2, true, 0}, {3, 4, 2, true, 2}}},
		{"what is enough is waited for", []step{{0, 2, 4, true, 0}, {60, 2, 2, true, 0}}},
		{"nothing is no share", []step{{0, 2, 0, true, 0}, {60, 2, 0, false, 0}}},
	} {
		f, start := scheduler.Follower{Settle: 10 * time.Second}, time.Unix(1000, 0)
		for i, s := range c.steps {
			require.Equal(t, s.want, f.Decide(start.Add(time.Duration(s.at)*time.Second), s.current, s.share, s.waits), "%s, step %d", c.name, i+1)
		}
	}
	f, start := scheduler.Follower{}, time.Unix(1000, 0)
	require.Equal(t, 3, f.Decide(start, 4, 3, true), "without a settling time nothing is waited for")
	f = scheduler.Follower{Settle: 10 * time.Second}
	f.Decide(start, 2, 4, false)
	f.Again(start.Add(10 * time.Second))
	require.Zero(t, f.Decide(start.Add(19*time.Second), 2, 4, false))
	require.Equal(t, 4, f.Decide(start.Add(20*time.Second), 2, 4, false))
}
