package statebackend

import "slices"

// How a backend finds rows that are not in its tables.
type residence uint8

const (
	// resident: every row is in memory.
	resident residence = iota
	// loading: restored rows are on their way into memory; until then the segments that were restored answer.
	loading
	// partial: rows may be evicted; the segments of a completed checkpoint answer.
	partial
)

// memory is the account of what the tables hold, and of when they hold too much.
type memory struct {
	// budget is in bytes; 0 means no bound.
	budget int64
	// room is how many entries may be added before the account is looked at again.
	room int
	// held is true while nothing may be evicted, since a walk is under way.
	held bool
	// excess is by how many bytes the tables were over the budget, with everything evicted that could be, when they were last looked at.
	excess int64
	// wanted is true from when the tables need a checkpoint to be able to evict until one is frozen.
	wanted bool
	// looks counts the settings of the clock since entries that have expired were looked for; hurry tells that many were found.
	looks int
	hurry bool
}

// Bounds of one look at the account, which is between two records.
const (
	maxRoom = 1 << 16
	// maxVisits is how many entries one eviction looks at.
	maxVisits = 1 << 10
)

// indexShare is the part of the budget that may go to finding pages of segments without a look at others.
const indexShare = 8

// added counts one entry more in the tables. It is on the way of each record, so is tick.
func (c *core) added() { c.memory.room-- }

// tick begins an operation on a state; no entry is evicted within one.
func (c *core) tick() {
	if c.memory.room < 0 && !c.memory.held {
		c.reclaim()
	}
}

// used estimates the bytes of all tables, and of what segments take in memory.
func (c *core) used() (n int64) {
	n = c.bySegments()
	for _, d := range c.states {
		n += d.state.bytes(c.perRow(d))
	}
	return n
}

// bySegments is what segments take in memory.
func (c *core) bySegments() int64 {
	if c.chain == nil {
		return 0
	}
	return c.chain.held
}

// perRow is the mean size of an encoded row of a state.
func (c *core) perRow(d *declaration) int64 {
	if rows := d.rows.Load(); rows > 0 {
		return d.rowBytes.Load() / rows
	}
	return c.assumed
}

// reclaim evicts rows if the tables are over the budget, and decides when to look again.
func (c *core) reclaim() {
	m := &c.memory
	if m.budget == 0 {
		m.room = maxRoom
		return
	}
	used := c.used()
	evicted := 0
	if c.mode == partial && used > m.budget {
		var freed int64
		freed, evicted = c.evict(used, used-m.budget+m.budget/64)
		used -= freed
	}
	m.excess = max(0, used-c.bySegments()-m.budget) // no checkpoint that is waited for lessens what segments take
	if evicted > maxVisits/8 {
		m.excess = 0 // there is more to evict
		m.room = max(c.limits.minRoom, evicted/2)
		return
	}
	if used > m.budget {
		m.wanted = true
		m.room = max(c.limits.minRoom, evicted/2)
		return
	}
	if c.mode != partial && used > m.budget-m.budget/4 {
		m.wanted = true
	}
	rows := int64(0)
	for _, d := range c.states {
		rows += int64(d.state.held())
	}
	perEntry := max(1, used/max(1, rows))
	m.room = max(c.limits.minRoom, int(min(maxRoom, max(0, m.budget-used)/perEntry/2)))
}

// evict removes entries that a segment has from the tables, the ones not used lately, until about want bytes are free or enough was
// looked at. Every state gives in proportion to its size.
func (c *core) evict(total, want int64) (freed int64, evicted int) {
	for _, d := range c.states {
		held := d.state.held()
		size := d.state.bytes(c.perRow(d))
		if held == 0 || size == 0 {
			continue
		}
		perEntry := max(1, size/int64(held))
		share := int64(float64(want) * float64(size) / float64(total) / float64(perEntry))
		n := d.state.evict(int(share)+1, c.forgettable(), maxVisits)
		freed, evicted = freed+int64(n)*perEntry, evicted+n
	}
	return freed, evicted
}

// forgettable returns up to which epoch the segments that answer for absent rows have all changes: what is older may be forgotten.
func (c *core) forgettable() uint64 {
	switch c.mode {
	case resident:
		return c.completed
	case partial:
		return min(c.completed, c.covered)
	default:
		return 0
	}
}

// wantsChain reports whether a snapshot has to leave its segments open, for rows to be evicted once it is completed.
func (c *core) wantsChain() bool {
	return c.memory.budget > 0 && (c.mode == partial || c.used() > c.memory.budget/2)
}

// install makes the segments of a completed checkpoint answer for absent rows.
func (c *core) install(f *Frozen) {
	next := f.chain.Swap(nil)
	if next == nil {
		return
	}
	if c.mode != partial && c.used() <= c.memory.budget/2 {
		c.retire(next)
		return
	}
	if c.mode == loading {
		if c.stop != nil {
			c.stop()
		}
		c.generation++
	}
	c.retire(c.chain)
	c.chain, c.covered, c.mode = next, f.epoch, partial
	c.memory.room = 0
}

// retire closes a chain behind the backend's back.
func (c *core) retire(ch *chain) {
	if ch == nil {
		return
	}
	c.background.Go(func() {
		if err := ch.close(); err != nil {
			c.cfg.Logger.Warn("state segment not closed", "operator", c.cfg.Operator, "err", err)
		}
	})
}

// fits reports whether all rows of the completed checkpoint would take no more than a part of the budget.
func (c *core) fits(part float64) bool {
	var rows uint64
	for _, s := range c.segments {
		rows += s.GetEntries()
	}
	return c.memory.budget == 0 || float64(rows)*float64(c.assumed+entryOverhead) < part*float64(c.memory.budget)
}

// comeBack begins to load all rows when a state that was too large for the budget has become small.
func (c *core) comeBack() {
	if c.mode == partial && c.cfg.Post != nil && c.fits(1./4) {
		c.mode = loading
		c.startLoader()
	}
}

// entryOverhead is what a row costs in memory beyond its encoding, about.
const entryOverhead = 128

// assume sets the size of a row before any is measured.
func (c *core) assume() {
	c.assumed = 64
	var rows, bytes uint64
	for _, s := range c.segments {
		rows, bytes = rows+s.GetEntries(), bytes+s.GetSize()
	}
	if rows > 1000 {
		c.assumed = int64(bytes / rows)
	}
}

// Pressure tells how a backend stands with its memory budget.
type Pressure struct {
	// Excess is by how many bytes the state in memory exceeds the budget with everything evicted that could be; only a completed
	// checkpoint lets it fall.
	Excess int64
	// Budget is the bound in bytes; 0 for none.
	Budget int64
	// Wanted tells that a checkpoint soon would help.
	Wanted bool
}

func (c *core) pressure() Pressure {
	return Pressure{Excess: c.memory.excess, Budget: c.memory.budget, Wanted: c.memory.wanted}
}

// sampleOf visits entries of a Go map in an arbitrary order, which differs from time to time, and removes those that are clean and were
// not used since the last visit.
func sampleOf[K comparable, E any](rows map[K]E, want, visits int, clean func(E) bool, remove func(K, E)) (evicted int) {
	for k, e := range rows {
		if evicted >= want || visits <= 0 {
			break
		}
		visits--
		if clean(e) {
			remove(k, e)
			evicted++
		}
	}
	return evicted
}

// upperHalf returns the value above which half of the values lie.
func upperHalf(values []int64) int64 {
	slices.Sort(values)
	return values[len(values)/2]
}
