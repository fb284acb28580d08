package driver

const (
	exploredJob = "j"
	// maxTasks is the largest number of tasks, each a source with its sink; taskManagers is the number of machines.
	maxTasks     = 3
	taskManagers = 2
	slotBound    = 5
	maxAttempts  = 6
)

// budget is what may still go wrong.
type budget struct {
	crash   uint8 // of a worker process
	leader  uint8 // ends of a leadership
	broken  uint8 // connections of a TaskManager that break and come back
	lost    uint8 // TaskManagers that the leader gives up while they and their workers live on
	decline uint8 // snapshots that cannot be stored
	unknown uint8 // entries of which the leader learns only by a barrier what became of them
	early   uint8 // timers that end while other things could still happen
	cancel  uint8 // commands to end the job
	copied  uint8 // requests to commit of which a copy arrives at any later time
	timeout uint8 // transactions that the broker aborts behind everybody's back
	total   uint8 // of all of these together, but for the last two; 0 for as much as they allow
}

// each returns what counts together.
func (b *budget) each() [8]*uint8 {
	return [8]*uint8{&b.crash, &b.leader, &b.broken, &b.lost, &b.decline, &b.unknown, &b.early, &b.cancel}
}

// anyOf is a number of faults of any kind, but for the broker's and requests that arrive twice.
func anyOf(n uint8) budget {
	return budget{crash: n, leader: n, broken: n, lost: n, decline: n, unknown: n, early: n, cancel: min(n, 1), total: n}
}

// begin makes what is left of each kind no more than what is left in all, so that equal futures have one budget.
func (b *budget) begin() {
	kinds := b.each()
	if b.total == 0 {
		for _, k := range kinds {
			b.total += *k
		}
	}
	for _, k := range kinds {
		*k = min(*k, b.total)
	}
}

// spend takes something from one kind.
func (b *budget) spend(kind *uint8) {
	*kind--
	if kind == &b.copied || kind == &b.timeout {
		return
	}
	b.total--
	for _, k := range b.each() {
		*k = min(*k, b.total)
	}
}

// scenario bounds an exploration.
type scenario struct {
	records  []uint8 // of each input; there are as many tasks
	budget   budget
	v1       bool // transactions v1
	slow     bool // spare ids are initialised in steps of their own
	durable  bool // the records of prepared transactions are kept with the checkpoints
	mutation mutation
	most     int // states; 0 for no bound
}

// mutation is a fault put into the protocol, to see it found.
type mutation uint8

const (
	none              mutation = iota
	commitFirst                // workers are told of a completion before it is in the log
	forgetPending              // a snapshot lists the transaction of its own barrier only
	fenceFirst                 // former attempts are fenced while the new one is being prepared
	releaseAtCommit            // an id is free when its transaction is committed
	onlyNewest                 // a notice commits the transactions of its own checkpoint only
	noRenewal                  // with transactions v1 ids are used again as they are
	forgetUnfenced             // the log does not remember which attempts are to be fenced
	settleAtOnce               // a completed checkpoint counts as committed at once
	reuseIDs                   // a new leader begins with the checkpoint ids of the former one
	staleReports               // reports of former attempts count as those of the current one
	hearFormer                 // a TaskManager goes on hearing the former leader once it has found the new one
	forgetThird                // the snapshot of the third task lists no transaction
	swallowLoss                // an answer that means loss is taken for success
	forgetLoss                 // a settling attempt does not tell what it could not commit
	fenceOnce                  // attempts whose workers may live are fenced at the start of the next one only
	replaceFirst               // what is written again is committed before the log knows of it
	replaceOnlyLost            // what was prepared behind a lost transaction is committed as it is
	forgetReplacement          // the next attempt does not learn what was written again
)

// and adds transactions that the broker gives up.
func (b budget) and(timeouts uint8) budget {
	b.timeout = timeouts
	return b
}
