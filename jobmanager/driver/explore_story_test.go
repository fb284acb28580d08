package driver

import (
	"fmt"
	"strings"
)

// tell tells the story of a finding.
func (f *finding) tell(x *explorer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nafter %d steps:\n", f.v, len(f.steps))
	x.telling = true
	defer func() { x.telling = false }()
	s := unpacked(x.states[0])
	for i, a := range f.steps {
		fmt.Fprintf(&b, "%3d  %s\n", i+1, x.describe(s, a))
		x.notes = nil
		next, _, v := x.step(s, a)
		for _, n := range x.notes {
			fmt.Fprintf(&b, "       %s\n", n)
		}
		for t := range next.tms {
			former, now := &x.machines.list[s.tms[t]], &x.machines.list[next.tms[t]]
			for _, m := range now.down[min(former.nDown, now.nDown):now.nDown] {
				fmt.Fprintf(&b, "       sent to tm%d: %s\n", t, m)
			}
		}
		if next.leader != s.leader {
			fmt.Fprintf(&b, "       leader: %s\n", x.describeLeader(next.leader))
		}
		if v != "" {
			fmt.Fprintf(&b, "     ! %s\n", v)
		}
		s = next
	}
	br := &x.brokers.list[s.broker]
	for i := range x.records {
		p := &br.partitions[i]
		fmt.Fprintf(&b, "output of input %d: %d visible, %v\n", i, p.visible, p.segments[:p.n])
	}
	return b.String()
}

func (x *explorer) describe(s state, a action) string {
	t := x.machines.list[s.tms[a.tm]]
	who := fmt.Sprintf("tm%d", a.tm)
	text := ""
	switch a.kind {
	case aReport:
		text = fmt.Sprintf("leader hears from %s: %s", who, t.out[0])
	case aInternal:
		text = "leader hears from storage or the scheduler"
	case aConnect:
		text = fmt.Sprintf("%s registers with the leader, running attempt %d", who, t.running().attempt)
	case aReceive:
		text = fmt.Sprintf("%s receives %s", who, t.down[0])
	case aRecover:
		text = fmt.Sprintf("%s, task %d: %s", who, a.sub, x.describeRecovery(&t, &t.tasks[a.sub].restore))
	case aFence:
		text = fmt.Sprintf("%s, task %d: former attempts are fenced", who, a.sub)
	case aEndTxn:
		text = fmt.Sprintf("%s, task %d: transaction %s is committed", who, a.sub, t.tasks[a.sub].committing)
	case aEndTxnCopied:
		text = fmt.Sprintf("%s, task %d: transaction %s is committed, and a copy of the request is still under way", who, a.sub, t.tasks[a.sub].committing)
	case aTimeout:
		text = fmt.Sprintf("the broker aborts the transaction of %s, which has taken too long", idName(a.sub))
	case aLate:
		text = fmt.Sprintf("a late copy of the request to commit %s arrives", x.brokers.list[s.broker].late)
	case aInit:
		text = fmt.Sprintf("%s, task %d: a spare id is initialised", who, a.sub)
	case aEmit:
		text = fmt.Sprintf("%s, task %d: record %d passes", who, a.sub, t.tasks[a.sub].pos+1)
	case aTick, aEarly:
		text = fmt.Sprintf("%s passes", x.wait(s.leader))
	case aCrash:
		text = fmt.Sprintf("the worker of attempt %d on %s dies", t.attempt, who)
	case aGiveUp:
		text = fmt.Sprintf("the worker of attempt %d on %s, which has failed, waits no longer to be told to stop", t.attempt, who)
	case aDecline:
		text = fmt.Sprintf("leader hears from %s that task %d could not store its snapshot of checkpoint %d", who, t.out[0].sub, t.out[0].n)
	case aLeaderEnds:
		text = "the leader dies, another one is elected"
	case aBreak:
		text = fmt.Sprintf("the connection to %s breaks", who)
	case aLose:
		text = fmt.Sprintf("the leader gives %s up, which lives on", who)
	case aCancel:
		text = "the job is canceled"
	}
	switch a.fault.mode {
	case logEndsLost:
		text += fmt.Sprintf("; the leader dies before entry %d of this step is in the log", a.fault.at+1)
	case logEndsApplied:
		text += fmt.Sprintf("; the leader dies once entry %d of this step is in the log", a.fault.at+1)
	case logUnknownLost, logUnknownApplied:
		text += fmt.Sprintf("; the fate of entry %d of this step is not known at first", a.fault.at+1)
	case logFine:
	}
	return text
}

func (x *explorer) describeLeader(id uint32) string {
	l := x.leaders[id]
	rec := l.log.record()
	text := fmt.Sprintf("term %d, %s, attempt %d", l.log.term, strings.ToLower(strings.TrimPrefix(rec.GetState().String(), "JOB_STATE_")), rec.GetAttempt())
	if l.j != nil {
		text += fmt.Sprintf(", phase %d", l.j.phase)
	}
	return text
}

func (x *explorer) describeRecovery(t *taskManager, r *restoring) string {
	all := x.toFinish(r)
	switch {
	case t.state == workerRewritten:
		return fmt.Sprintf("transaction %s, which is written again, is committed", r.rewritten)
	case int(r.done) == len(all):
		return "what is lost is written again"
	case r.again != 0:
		return fmt.Sprintf("restored transaction %s, which is behind a lost one, is revoked", all[r.done].cid)
	default:
		return fmt.Sprintf("restored transaction %s is committed", all[r.done].cid)
	}
}
