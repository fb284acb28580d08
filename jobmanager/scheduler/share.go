package scheduler

import "time"

// Claim is what a job has to say when slots are shared out.
type Claim struct {
	ID string
	// Slots is what a job of fixed parallelism holds or waits for; Holds tells which.
	Slots int
	Holds bool
	// Auto jobs take what the others leave, at most Most.
	Auto bool
	Most int
}

// Shares returns the number of slots of each auto job out of total. Claims are in the order of the jobs' creation. Jobs of fixed
// parallelism come first: what they hold, and what they wait for if it can be had while every auto job keeps one slot. The rest goes to
// the auto jobs in equal parts, the older ones first with what is over. The shares depend on who is there and on nothing that the
// shares change, so they are not sought again and again.
func Shares(total int, claims []Claim) map[string]int {
	left := total
	var autos []Claim
	for _, c := range claims {
		switch {
		case c.Auto:
			autos = append(autos, c)
		case c.Holds:
			left -= c.Slots
		}
	}
	for _, c := range claims {
		if !c.Auto && !c.Holds && c.Slots <= left-len(autos) {
			left -= c.Slots
		}
	}
	shares := make(map[string]int, len(autos))
	for given := true; left > 0 && given; {
		given = false
		for _, c := range autos {
			if left > 0 && shares[c.ID] < c.Most {
				shares[c.ID]++
				left--
				given = true
			}
		}
	}
	return shares
}

// returnTime is how long a job without enough slots waits for a TaskManager that is only restarted, before it goes on with fewer.
const returnTime = 2 * time.Second

// Follower decides when an auto job goes to another share. The zero value but for Settle has seen nothing.
type Follower struct {
	// Settle is how long a share must have been the same before a job that runs is rescaled to it.
	Settle time.Duration

	share int
	since time.Time
}

// Decide returns the number of slots to go to now, or 0 to stay, for a job on current slots. A job that waits for slots runs on none: it
// goes on with fewer after a moment in which those it had may come back.
func (f *Follower) Decide(now time.Time, current, share int, waits bool) int {
	if share != f.share || f.since.IsZero() {
		f.share, f.since = share, now
	}
	switch {
	case share == current || share == 0:
		return 0
	case waits && (share > current || now.Sub(f.since) < min(returnTime, f.Settle)):
		return 0
	case !waits && now.Sub(f.since) < f.Settle:
		return 0
	}
	return share
}

// Again makes the follower wait anew, after what it decided has failed or when a job begins to wait for slots.
func (f *Follower) Again(now time.Time) { f.since = now }
