package driver

import (
	"context"
	"fmt"
	"log/slog"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	kafkaslots "github.com/weir-stream/weir/sinks/kafka/slots"
)

// state is a state of the whole: numbers of the states of its parts.
type state struct {
	leader, broker uint32
	tms            [taskManagers]uint32
	left           uint32 // what may still go wrong
}

func (s state) packed() pair {
	if s.leader >= 1<<24 || s.broker >= 1<<24 || s.left >= 1<<16 || s.tms[0] >= 1<<24 || s.tms[1] >= 1<<24 {
		panic("explore: more states of a part than can be packed")
	}
	return pair{uint64(s.leader) | uint64(s.broker)<<24 | uint64(s.left)<<48, uint64(s.tms[0]) | uint64(s.tms[1])<<32}
}

func unpacked(p pair) state {
	return state{
		leader: uint32(p[0] & (1<<24 - 1)), broker: uint32(p[0] >> 24 & (1<<24 - 1)), left: uint32(p[0] >> 48),
		tms: [taskManagers]uint32{uint32(p[1]), uint32(p[1] >> 32)},
	}
}

// explorer walks through the states of a scenario, breadth first.
type explorer struct {
	scenario
	ctx     context.Context
	dir     string
	bucket  *memBucket
	metrics *Metrics
	logger  *slog.Logger
	shapes  shapes
	buf     []byte   // of the canonical form at work
	telling bool     // a story is told: steps are taken again
	notes   []string // of the present step
	vouched []cid    // what the log vouches for in the present step

	// The leader's side.
	leaders      []*leader
	infos        []leaderInfo
	leaderIndex  table
	leaderMemo   table
	leaderOuts   []leaderOut
	listedIn     map[string][]cid
	lists        named[[]cid]
	replacements named[[]*workerv1.Replacement]
	losses       named[[]*jobv1.LostOutput]
	cids         map[string]cid

	// The workers' side.
	ledgers   *core[ledgerState, ledgerOp, ledgerOut]
	pools     *core[kafkaslots.Pool, poolOp, poolOut]
	poolRenew uint32
	preps     interned[prep]
	fences    named[[]*workerv1.FencedAttempt]
	shares    map[[2]uint32][]uint8
	restores  named[restored]
	handles   interned[handle]
	brokers   interned[broker]
	machines  interned[taskManager]
	budgets   interned[budget]
	locals    table // what steps of one TaskManager and the broker lead to
	localOuts []localOut
	effects   table // what a step of the leader makes of a TaskManager

	known  table
	states []pair
	from   []uint32 // state that was left
	by     []action // and the step
	fair   []uint32 // what follows when nothing more goes wrong; itself at the end
}

func newExplorer(ctx context.Context, dir string, sc scenario) *explorer {
	x := &explorer{
		scenario: sc, ctx: ctx, dir: dir, bucket: &memBucket{content: map[string][]byte{}}, metrics: newMetricsForNobody(), logger: nobodyReads(),
		shapes: shapes{}, listedIn: map[string][]cid{}, cids: map[string]cid{}, shares: map[[2]uint32][]uint8{},
	}
	x.replacements.number("", nil)
	x.losses.number("", nil)
	x.ledgers = newCore(x.shapes, &ledgerState{}, applyLedger)
	x.pools = newCore(x.shapes, kafkaslots.NewPool(slotBound, false), applyPool)
	x.poolRenew = x.pools.intern(kafkaslots.NewPool(slotBound, x.mutation != noRenewal))
	sc.budget.begin()
	s := state{leader: x.internLeader(x.firstLeader()), broker: x.brokers.number(broker{durable: sc.durable}), left: x.budgets.number(sc.budget)}
	for i := range s.tms {
		s.tms[i] = x.machines.number(taskManager{})
	}
	x.add(s, 0, action{})
	return x
}

// tasks is the number of tasks.
func (x *explorer) tasks() int { return len(x.records) }

func (x *explorer) add(s state, from uint32, by action) uint32 {
	key := s.packed()
	if i, ok := x.known.get(key); ok {
		return i
	}
	i := uint32(len(x.states))
	x.known.put(key, i)
	x.states, x.from, x.by = append(x.states, key), append(x.from, from), append(x.by, by)
	return i
}

// settled says what is wrong with a state in which nothing more happens.
func (x *explorer) settled(s state) violation {
	info, b := &x.infos[s.leader], &x.brokers.list[s.broker]
	if n := b.open(); n > 0 {
		return violation(fmt.Sprintf("%d transactions stay open for ever", n))
	}
	lost := false
	for i := range x.records {
		p := &b.partitions[i]
		if p.lost != info.lost[i] {
			return violation(fmt.Sprintf("of input %d, the records %v are lost for ever, and the log says that %v are", i, recordsIn(p.lost), recordsIn(info.lost[i])))
		}
		lost = lost || p.lost != 0
	}
	switch {
	case info.ended && lost && info.state != jobv1.JobState_JOB_STATE_FAILED && info.state != jobv1.JobState_JOB_STATE_CANCELED:
		return "records are lost, and the job has ended as if they were not"
	case info.ended:
		return ""
	case !info.running:
		return "the job does not run again"
	case lost:
		return "records are lost, and the job runs on as if they were not"
	}
	for i := range x.records {
		if got := b.partitions[i].visible; got != x.records[i] {
			return violation(fmt.Sprintf("of input %d, %d of %d records are ever seen", i, got, x.records[i]))
		}
	}
	return ""
}

func recordsIn(bits uint16) (out []int) {
	for r := range 16 {
		if bits&(1<<r) != 0 {
			out = append(out, r)
		}
	}
	return out
}

// finding is a way to a broken promise.
type finding struct {
	v     violation
	steps []action
}

// search explores until a promise is broken, everything is known, or there are too many states. complete tells that everything is.
func (x *explorer) search() (f *finding, complete bool) {
	var acts []action
	for i := uint32(0); int(i) < len(x.states); i++ {
		if x.most > 0 && len(x.states) > x.most {
			return nil, false
		}
		s := unpacked(x.states[i])
		var fair int
		acts, fair = x.enabled(s, acts[:0])
		if fair == 0 {
			x.fair = append(x.fair, i)
			if v := x.settled(s); v != "" {
				return x.found(i, action{}, v), false
			}
		}
		for k := 0; k < len(acts); k++ {
			a := acts[k]
			next, calls, v := x.step(s, a)
			if v != "" {
				return x.found(i, a, v), false
			}
			n := x.add(next, i, a)
			if k == 0 && fair > 0 {
				x.fair = append(x.fair, n)
			}
			if a.fault.mode == logFine && calls > 0 {
				left := &x.budgets.list[next.left]
				for at := range calls {
					for _, mode := range alternatives {
						if ends := mode <= logEndsApplied; ends && left.leader > 0 || !ends && left.unknown > 0 {
							b := a
							b.fault = fault{mode, at}
							acts = append(acts, b)
						}
					}
				}
			}
		}
	}
	return x.circles(), true
}

// circles looks for a state from which a fair continuation never comes to its end. A job that goes round, waiting for a timer again and
// again, in a state in which all is well has come to its end.
func (x *explorer) circles() *finding {
	const unseen, passing, fine = 0, 1, 2
	mark := make([]uint8, len(x.states))
	var path []uint32
	for i := range x.states {
		path = path[:0]
		at := uint32(i)
		for mark[at] == unseen {
			mark[at] = passing
			path = append(path, at)
			if x.fair[at] == at {
				break
			}
			at = x.fair[at]
		}
		if mark[at] == passing && x.fair[at] != at {
			if v := x.circle(at); v != "" {
				return x.found(uint32(i), action{}, v)
			}
		}
		for _, p := range path {
			mark[p] = fine
		}
	}
	return nil
}

// circle says what is wrong with a circle.
func (x *explorer) circle(start uint32) violation {
	for at, first := start, true; first || at != start; at, first = x.fair[at], false {
		s := unpacked(x.states[at])
		if acts, fair := x.enabled(s, nil); fair == 1 && acts[0].kind == aTick && x.settled(s) == "" {
			return ""
		}
	}
	return "the job goes in a circle for ever"
}

func (x *explorer) found(at uint32, last action, v violation) *finding {
	f := &finding{v: v}
	for i := at; i != 0; i = x.from[i] {
		f.steps = append([]action{x.by[i]}, f.steps...)
	}
	if last.kind != 0 {
		f.steps = append(f.steps, last)
	}
	return f
}
