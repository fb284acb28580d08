package barrier

// Barrier is the mark in a channel between the records that belong to a checkpoint and those that do not.
type Barrier struct {
	Checkpoint uint64
	// Full asks for complete snapshots.
	Full bool
	// Stop tells that the sources emit nothing after this barrier until they are resumed.
	Stop bool
}

// Effect is what the task must do after an event and before it reads the next record: first UnblockAll, then Block, then Snapshot.
type Effect struct {
	// Block tells to read nothing more from the channel that delivered the event.
	Block bool
	// UnblockAll tells to read from all channels again.
	UnblockAll bool
	// Snapshot tells to take a snapshot for Barrier and to pass it on.
	Snapshot bool
	Barrier  Barrier
}

// Aligner aligns the barriers of a task's channels.
//
// Checkpoint numbers grow. A barrier of a checkpoint that was snapshotted, aborted or overtaken by a higher one is discarded, so
// that a barrier still queued somewhere can never block the task for good.
type Aligner struct {
	// floor is the highest checkpoint that needs no barrier any more.
	floor uint64
	// current is the barrier being aligned; meaningful while active.
	current   Barrier
	active    bool
	delivered []bool
	ended     []bool
	// missing counts channels that are neither ended nor have delivered the current barrier.
	missing int
}

// NewAligner returns an aligner for channels numbered from 0.
func NewAligner(channels int) *Aligner {
	return &Aligner{delivered: make([]bool, channels), ended: make([]bool, channels)}
}

// Barrier takes a barrier that came on channel ch. Ended channels carry barriers too.
func (a *Aligner) Barrier(ch int, b Barrier) Effect {
	switch {
	case b.Checkpoint <= a.floor:
		return Effect{}
	case a.active && b.Checkpoint < a.current.Checkpoint:
		return Effect{}
	case a.active && b.Checkpoint == a.current.Checkpoint:
		return a.deliver(ch, Effect{})
	}
	var e Effect
	if a.active {
		e.UnblockAll = true
	}
	a.begin(b)
	return a.deliver(ch, e)
}

func (a *Aligner) begin(b Barrier) {
	a.active, a.current, a.missing = true, b, 0
	for ch := range a.delivered {
		a.delivered[ch] = false
		if !a.ended[ch] {
			a.missing++
		}
	}
}

func (a *Aligner) deliver(ch int, e Effect) Effect {
	if !a.delivered[ch] && !a.ended[ch] {
		a.missing--
	}
	a.delivered[ch] = true
	if a.missing > 0 {
		e.Block = true
		return e
	}
	return a.complete()
}

func (a *Aligner) complete() Effect {
	a.active = false
	a.floor = a.current.Checkpoint
	return Effect{UnblockAll: true, Snapshot: true, Barrier: a.current}
}

// Abort drops the alignment of every checkpoint up to n, and barriers of those that still come are discarded.
func (a *Aligner) Abort(n uint64) Effect {
	a.floor = max(a.floor, n)
	if a.active && a.current.Checkpoint <= n {
		a.active = false
		return Effect{UnblockAll: true}
	}
	return Effect{}
}

// End tells that channel ch carries no more records. It counts as having delivered every barrier.
func (a *Aligner) End(ch int) Effect {
	if a.ended[ch] {
		return Effect{}
	}
	a.ended[ch] = true
	if a.active && !a.delivered[ch] {
		if a.missing--; a.missing == 0 {
			return a.complete()
		}
	}
	return Effect{}
}

// Missing returns the channels that have neither delivered the barrier being aligned nor ended.
func (a *Aligner) Missing() []int {
	var missing []int
	for ch := range a.delivered {
		if a.active && !a.delivered[ch] && !a.ended[ch] {
			missing = append(missing, ch)
		}
	}
	return missing
}

// Aligning returns the checkpoint being aligned.
func (a *Aligner) Aligning() (checkpoint uint64, ok bool) {
	return a.current.Checkpoint, a.active
}
