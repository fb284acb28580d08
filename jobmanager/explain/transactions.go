package explain

import (
	"fmt"
	"time"
)

// heldFor is how old an open transaction of somebody else must be before it is worth telling that it keeps output from being seen.
const heldFor = 5 * time.Second

// lost tells of lost output that nobody has accepted, and of the choices.
func (f Facts) lost() Finding {
	x := Finding{Kind: KindLost, Blocking: f.Phase == Ended}
	n, unknown, records := 0, 0, int64(0)
	var details string
	for _, l := range f.Lost {
		if l.GetAccepted() {
			continue
		}
		records += max(0, l.GetRecords())
		if more := l.GetTransactions(); more > 0 {
			n += int(more)
			if l.GetUnknown() {
				unknown++
			}
			details += fmt.Sprintf("\nUp to %d more of checkpoint %d and later, for which there is no room one by one.", more, l.GetCheckpoint())
			continue
		}
		n++
		how := "was aborted behind the job's back"
		if l.GetUnknown() {
			unknown++
			how = "has an outcome that cannot be found out"
		}
		details += fmt.Sprintf("\nCheckpoint %d, sink %s: transaction %s with %d records %s", l.GetCheckpoint(), l.GetSink(), l.GetTransaction(), l.GetRecords(), how)
		for i, p := range l.GetParts() {
			details += map[bool]string{true: ": ", false: ", "}[i == 0] + fmt.Sprintf("%s %s (%d records)", p.GetPlace(), p.GetDetail(), p.GetRecords())
		}
		details += "."
	}
	if n == 0 {
		return Finding{}
	}
	x.Text = fmt.Sprintf("Output is lost: %d transactions with %d records that a completed checkpoint lists are not committed, and nobody reads their input again.%s", n, records, details)
	flag := "--accept-loss"
	if unknown > 0 {
		flag = "--accept-unknown"
	}
	x.Advice = fmt.Sprintf("'weir submit --from %s@%d %s' goes on without these records and records that. To have them, write them again from their source by other means. "+
		"'weir txn list %s' shows what the system says now.", f.JobID, f.Kept, flag, f.JobID)
	return x
}

// oldTransaction tells of the task whose transaction has had more than half of its time.
func (f Facts) oldTransaction() Finding {
	var oldest *Task
	var worst float64
	for i := range f.Tasks {
		s := f.Tasks[i].Statistics
		if s.GetTransactionTimeoutMs() == 0 {
			continue
		}
		if part := float64(s.GetOldestTransactionMs()) / float64(s.GetTransactionTimeoutMs()); part > 0.5 && part > worst {
			oldest, worst = &f.Tasks[i], part
		}
	}
	if oldest == nil {
		return Finding{}
	}
	age := oldest.passed(f.Now, oldest.Statistics.GetOldestTransactionMs())
	timeout := time.Duration(oldest.Statistics.GetTransactionTimeoutMs()) * time.Millisecond
	return Finding{
		Kind: KindTransaction, Since: f.Now.Add(-age), Blocking: true, short: "a checkpoint to complete, before a transaction's time is over",
		Text: fmt.Sprintf("%s has had a transaction open for %s, which is more than half of the %s after which its system ends it.", oldest.where(), span(age), span(timeout)),
		Advice: "See why checkpoints do not complete, above or with 'weir checkpoints " + f.JobID + "'. Nothing is lost yet: the job restarts before it acknowledges what could not be committed in time. " +
			"A longer transaction timeout, or transaction.max.timeout.ms at the broker, leaves more room.",
	}
}

// held tells of output that readers do not see because of a transaction that is none of the running attempt's.
func (f Facts) held() (out []Finding) {
	for _, h := range f.Held {
		age := time.Duration(h.GetAgeMs()) * time.Millisecond
		if h.GetCurrent() || h.GetAgeMs() >= 0 && age < heldFor {
			continue
		}
		x := Finding{Kind: KindHeld, Blocking: true, short: fmt.Sprintf("a transaction on %s to end, which is of %s", h.GetPlace(), h.GetOwner())}
		x.Text = fmt.Sprintf("Readers of %s see it up to offset %d of %d only. The oldest open transaction there is of %s", h.GetPlace(), h.GetVisible(), h.GetEnd(), h.GetOwner())
		if h.GetAgeMs() >= 0 {
			x.Text += ", for " + span(age)
			x.Since = f.Now.Add(-age)
		}
		x.Text += ". What this job commits behind it shows when that one ends."
		x.Advice = "What ends it: " + h.GetEnds() + "."
		out = append(out, x)
		if len(out) == 3 {
			break
		}
	}
	return out
}
