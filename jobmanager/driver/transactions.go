package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

const (
	// inquiryTimeout bounds the wait for the workers' answers about transactions, resolveTimeout that for the end of one by hand: a sink
	// looks first, and its system may take its time to end one.
	inquiryTimeout = 20 * time.Second
	resolveTimeout = 90 * time.Second
	// fenceEvery is the time between two fencings of attempts whose workers are not proven dead.
	fenceEvery = 30 * time.Second
)

// Answers are what the workers of a job say about its transactions.
type Answers struct {
	Done []*workerv1.TransactionsDone
	// Problems says in sentences who did not answer, and what could not be found out.
	Problems []string
	// Unanswered tells that somebody to whom the command was sent did not answer: it may have been carried out there.
	Unanswered bool
}

// transactionsRequest asks the workers of the running attempt. The reply has room for the answer.
type transactionsRequest struct {
	command *workerv1.Transactions
	reply   chan<- Answers
}

// inquiry is a command about transactions that the workers have not all answered.
type inquiry struct {
	missing  map[string]bool // TaskManager ids
	limit    time.Duration
	deadline time.Time
	answers  Answers
	// reply gets the answers; nil when former attempts are fenced again.
	reply chan<- Answers
	// dead are the former attempts that are done with when all workers have fenced them.
	dead []uint64
}

// Transactions has the workers of a job carry out a command about its transactions: those of its running attempt, or one that is started
// for it when the job has ended.
func (m *Manager) Transactions(ctx context.Context, rec *raftv1.JobRecord, cmd *workerv1.Transactions) (Answers, error) {
	if !hasTransactions(rec.GetGraph()) {
		return Answers{}, nil
	}
	if !rec.GetGraph().GetTransactionsCommand() {
		return Answers{Problems: []string{"the job's binary is of an older version of Weir and cannot tell of its transactions"}}, nil
	}
	cmd.Attempts = rec.GetUnfenced()
	if fsm.Terminal(rec.GetState()) {
		return m.inspectEnded(ctx, rec, cmd)
	}
	reply := make(chan Answers, 1)
	return ask(ctx, m, rec.GetId(), transactionsRequest{cmd, reply}, reply)
}

func (j *job) onTransactionsRequest(ev transactionsRequest) {
	if j.att == nil || j.phase != phaseRunning {
		ev.reply <- Answers{Problems: []string{"the job has no running attempt that could be asked; see 'weir explain " + j.id + "', and ask again when it runs or has ended"}}
		return
	}
	j.inquire(ev.command, &inquiry{reply: ev.reply})
}

// inquire sends a command about transactions to all workers. It ends when all have answered, or cannot any more.
func (j *job) inquire(cmd *workerv1.Transactions, q *inquiry) {
	if j.inquiries == nil {
		j.inquiries = make(map[uint64]*inquiry)
		j.lastInquiry = uint64(time.Now().UnixNano()) // so that an answer to a former leader is not taken for one
	}
	j.lastInquiry++
	q.limit = inquiryTimeout
	if cmd.GetResolve() != nil {
		q.limit = resolveTimeout
	}
	q.missing, q.deadline = make(map[string]bool), time.Now().Add(q.limit)
	j.inquiries[j.lastInquiry] = q
	cmd.Request = j.lastInquiry
	for _, w := range j.living(nil) {
		q.missing[w.tm] = true
	}
	j.commandAll(&workerv1.Command{Command: &workerv1.Command_Transactions{Transactions: cmd}}, nil)
	j.answerInquiries(func(*inquiry) string { return "" })
}

func (j *job) onTransactionsDone(w *worker, done *workerv1.TransactionsDone) {
	q := j.inquiries[done.GetRequest()]
	if q == nil || !q.missing[w.tm] {
		return
	}
	delete(q.missing, w.tm)
	q.answers.add(w.host, done)
	j.answerInquiries(func(*inquiry) string { return "" })
}

func (a *Answers) add(host string, done *workerv1.TransactionsDone) {
	a.Done = append(a.Done, done)
	if done.GetError() != "" && done.GetOutcome() == workerv1.ResolveOutcome_RESOLVE_OUTCOME_NOT_MINE {
		a.Problems = append(a.Problems, fmt.Sprintf("the worker on %s: %s", host, done.GetError()))
	}
}

// answerInquiries answers those that are complete, and those that overdue gives a reason for.
func (j *job) answerInquiries(overdue func(*inquiry) string) {
	for n, q := range j.inquiries {
		why := overdue(q)
		if len(q.missing) > 0 && why == "" {
			continue
		}
		delete(j.inquiries, n)
		complete := len(q.missing) == 0
		if !complete {
			var names []string
			for tm := range q.missing {
				names = append(names, tm)
			}
			slices.Sort(names)
			q.answers.Unanswered = true
			q.answers.Problems = append(q.answers.Problems, fmt.Sprintf("no answer of the workers on %s: %s", strings.Join(names, ", "), why))
		}
		if q.reply != nil {
			q.reply <- q.answers
		} else {
			j.fencedAgain(q, complete)
		}
	}
}

func (j *job) endInquiries(why string) { j.answerInquiries(func(*inquiry) string { return why }) }

// inquiriesDueAt is when the next inquiry is overdue; zero without one.
func (j *job) inquiriesDueAt() (at time.Time) {
	for _, q := range j.inquiries {
		if at.IsZero() || q.deadline.Before(at) {
			at = q.deadline
		}
	}
	return at
}

func (j *job) tickInquiries(now time.Time) {
	j.answerInquiries(func(q *inquiry) string {
		if now.Before(q.deadline) {
			return ""
		}
		return fmt.Sprintf("they did not answer within %s", q.limit)
	})
}

// fenceDueAt is when former attempts are to be fenced again; zero when there are none that could have opened something.
func (j *job) fenceDueAt() time.Time {
	if j.phase != phaseRunning || len(j.rec.GetUnfenced()) == 0 || !j.rec.GetGraph().GetTransactionsCommand() {
		return time.Time{}
	}
	return j.fenceAt
}

// fenceAgain ends what the workers of former attempts may have opened since they were fenced, for as long as they are not proven dead:
// a frozen machine may thaw at any time and begin where it stopped. The attempts of which all workers are dead by now are done with.
func (j *job) fenceAgain(now time.Time) {
	at := j.fenceDueAt()
	if at.IsZero() || now.Before(at) {
		return
	}
	j.fenceAt = now.Add(j.m.cfg.FenceEvery)
	var dead []uint64
	for _, f := range j.rec.GetUnfenced() {
		if workers, known := j.undead[f.GetAttempt()]; known && len(workers) == 0 {
			dead = append(dead, f.GetAttempt())
		}
	}
	cmd := &workerv1.Transactions{Attempts: j.rec.GetUnfenced(), Action: &workerv1.Transactions_Fence{Fence: &workerv1.FenceAgain{}}}
	j.inquire(cmd, &inquiry{dead: dead})
}

func (j *job) fencedAgain(q *inquiry, complete bool) {
	if problems := q.answers.Problems; len(problems) > 0 {
		j.logger.Warn("former attempts not fenced again; it is tried again", "after", j.m.cfg.FenceEvery, "problems", problems)
		return
	}
	if complete && len(q.dead) > 0 && j.phase == phaseRunning {
		j.fenced(q.dead)
	}
}

// fenced tells the log that attempts are done with; false when the driver has ended with that.
func (j *job) fenced(attempts []uint64) bool {
	res, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_FencedAttempts{FencedAttempts: &raftv1.FencedAttempts{
		JobId: j.id, Attempts: attempts,
	}}})
	switch {
	case !ok:
		return false
	case res.Err != nil: // they are fenced again
		j.logger.Error("fenced attempts not recorded", "attempts", attempts, "error", res.Err)
		return true
	}
	for _, a := range attempts {
		delete(j.undead, a)
	}
	return true
}

// recordLosses puts into the log what the workers could not commit of the restore point; false when the driver, or the attempt, has ended with
// that. A job that was told to accept losses has accepted them; what a settling attempt finds is for people to decide.
func (j *job) recordLosses() bool {
	var lost []*jobv1.LostOutput
	for _, w := range j.att.workers {
		for _, l := range w.lost {
			l.Accepted = !j.att.settle
			lost = append(lost, l)
		}
	}
	if len(lost) == 0 {
		return true
	}
	j.logger.Error("output that a completed checkpoint lists is lost", "transactions", len(lost), "accepted", !j.att.settle)
	res, ok := j.propose(LossCommand(j.m.cfg.Log, j.id, lost))
	if ok && res.Err != nil {
		j.fail(failure{class: restartClass, message: "lost output could not be recorded: " + res.Err.Error()})
		return false
	}
	return ok
}

// LossCommand is the entry that records lost output. A member that is not upgraded yet does not know how to count what there is no room for.
func LossCommand(log Log, jobID string, lost []*jobv1.LostOutput) *raftv1.Command {
	cmd := &raftv1.Command{Command: &raftv1.Command_UpdateLosses{UpdateLosses: &raftv1.UpdateLosses{JobId: jobID, Lost: lost}}}
	if fsm.LevelOf(cmd) <= log.Level() {
		return cmd
	}
	return &raftv1.Command{Command: &raftv1.Command_RecordLoss{RecordLoss: &raftv1.RecordLoss{JobId: jobID, Lost: lost}}}
}
