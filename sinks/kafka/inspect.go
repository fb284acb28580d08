package kafkasink

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
)

// TransactionTimeout implements sinks.TimeLimited.
func (s *transactional[T]) TransactionTimeout() time.Duration { return s.timeout }

// Inspect implements sinks.Inspector. Ages of transactions that this process did not begin are by the clocks of other machines.
func (s *transactional[T]) Inspect(ctx context.Context, pending []sinks.Committable, scope operator.Scope) (sinks.Inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	var out sinks.Inspection
	ids := s.ids.Share(scope)
	if !s.place.SettleOnly {
		for slot := range slotBound(s.place.Checkpoints) {
			ids = append(ids, s.ids.ID(s.place.Attempt, s.place.Subtask, slot))
		}
	}
	known := make([]*prepared, len(pending))
	topics := map[string]bool{}
	if s.place.Subtask == 0 {
		topics[s.settings.topic] = true
	}
	for i, c := range pending {
		p, err := decodeCommittable(c)
		if err != nil {
			return out, err
		}
		known[i] = p
		ids = append(ids, p.ID)
		for _, t := range p.Topics {
			topics[t.Name] = true
		}
	}
	slices.Sort(ids)
	described, err := s.cluster.describe(ctx, slices.Compact(ids)...)
	if err != nil {
		return out, err
	}
	shown := map[string]bool{}
	for _, p := range known {
		t, open := s.describePrepared(ctx, p, described[p.ID])
		if open {
			shown[p.ID] = true
		}
		out.Pending = append(out.Pending, t)
	}
	for _, id := range slices.Sorted(maps.Keys(described)) {
		switch d := described[id]; {
		case shown[id]:
		case d.State == stateOngoing:
			out.Others = append(out.Others, s.describeOpen(d))
		case endedAs[d.State] != 0:
			out.Ended = append(out.Ended, sinks.Transaction{ID: id, State: endedAs[d.State]})
		}
	}
	out.Held, err = s.held(ctx, slices.Sorted(maps.Keys(topics)))
	return out, err
}

// endedAs is what the coordinator's word for an id says of the transaction that was on it last.
var endedAs = map[string]sinks.TransactionState{
	"CompleteCommit":    sinks.TransactionCommitted,
	"PrepareCommit":     sinks.TransactionCommitted,
	"CompleteAbort":     sinks.TransactionAborted,
	"PrepareAbort":      sinks.TransactionAborted,
	"PrepareEpochFence": sinks.TransactionAborted,
}

// describePrepared tells what became of a prepared transaction; open tells that it is what is open on its id.
func (s *transactional[T]) describePrepared(ctx context.Context, p *prepared, d kadm.DescribedTransaction) (t sinks.Transaction, open bool) {
	t = sinks.Transaction{ID: p.ID, Parts: p.parts(), Age: time.Since(p.Started), Left: -1, State: sinks.TransactionUnknown}
	t.Attempt, t.Subtask, _, _ = s.ids.Parse(p.ID)
	if age, known := s.lanes.age(p.ID); known {
		t.Age = age
	}
	switch viewOf(d, p) {
	case viewOpen:
		t.State = sinks.TransactionPrepared
		t.Left = max(0, time.Duration(d.TimeoutMillis)*time.Millisecond-t.Age)
		return t, true
	case viewCommitting:
		t.State = sinks.TransactionCommitted
	case viewAborting:
		t.State = sinks.TransactionAborted
	case viewOther:
		switch proof, err := s.cluster.prove(ctx, p); {
		case err == nil && proof == verdictCommitted:
			t.State = sinks.TransactionCommitted
		case err == nil && proof == verdictLost:
			t.State = sinks.TransactionAborted
		}
	}
	return t, false
}

// describeOpen tells of a transaction of which only the coordinator knows.
func (s *transactional[T]) describeOpen(d kadm.DescribedTransaction) sinks.Transaction {
	t := sinks.Transaction{ID: d.TxnID, State: sinks.TransactionOpen}
	t.Attempt, t.Subtask, _, _ = s.ids.Parse(d.TxnID)
	t.Age, t.Left = agesOf(d)
	for _, topic := range d.Topics.Sorted() {
		for _, p := range topic.Partitions {
			t.Parts = append(t.Parts, sinks.Part{Place: place(topic.Topic, p), Records: -1})
		}
	}
	return t
}

// agesOf returns how old a transaction is and how long the broker leaves it, by the broker's start and this machine's clock.
func agesOf(d kadm.DescribedTransaction) (age, left time.Duration) {
	if d.StartTimestamp <= 0 {
		return -1, -1
	}
	age = max(0, time.Since(time.UnixMilli(d.StartTimestamp)))
	return age, max(0, time.Duration(d.TimeoutMillis)*time.Millisecond-age)
}

// held finds the partitions of which readers do not see everything, and whose transaction that is.
func (s *transactional[T]) held(ctx context.Context, topics []string) ([]sinks.Held, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	adm := kadm.NewClient(s.cluster.cl)
	stable, err := adm.ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("ask for the last stable offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("ask for the end offsets: %w", err)
	}
	set := kadm.TopicsSet{}
	ends.Each(func(end kadm.ListedOffset) {
		if lso, ok := stable.Lookup(end.Topic, end.Partition); ok && lso.Err == nil && end.Err == nil && lso.Offset < end.Offset {
			set.Add(end.Topic, end.Partition)
		}
	})
	if len(set) == 0 {
		return nil, nil
	}
	described, err := adm.DescribeProducers(ctx, set)
	if err != nil {
		return nil, fmt.Errorf("ask for the producers of %v: %w", topics, err)
	}
	oldest := map[string]kadm.DescribedProducer{}
	var producers []int64
	described.EachPartition(func(p kadm.DescribedProducersPartition) {
		name := place(p.Topic, p.Partition)
		for _, d := range p.ActiveProducers {
			if o, ok := oldest[name]; d.CurrentTxnStartOffset >= 0 && (!ok || d.CurrentTxnStartOffset < o.CurrentTxnStartOffset) {
				oldest[name] = d
			}
		}
		if o, ok := oldest[name]; ok {
			producers = append(producers, o.ProducerID)
		}
	})
	byProducer, err := s.transactionsOf(ctx, producers)
	var out []sinks.Held
	for _, topic := range set.Sorted() {
		for _, n := range topic.Partitions {
			name := place(topic.Topic, n)
			producer, ok := oldest[name]
			if !ok {
				continue // it has just ended
			}
			lso, _ := stable.Lookup(topic.Topic, n)
			end, _ := ends.Lookup(topic.Topic, n)
			h := sinks.Held{Place: name, Visible: lso.Offset, End: end.Offset, Age: -1, Left: -1}
			d, found := byProducer[producer.ProducerID]
			if found {
				h.Transaction = d.TxnID
				h.Age, h.Left = agesOf(d)
			}
			s.attribute(&h, producer.ProducerID, d.State)
			out = append(out, h)
		}
	}
	return out, err
}

// transactionsOf finds the open transactions of producers.
func (s *transactional[T]) transactionsOf(ctx context.Context, producers []int64) (map[int64]kadm.DescribedTransaction, error) {
	out := map[int64]kadm.DescribedTransaction{}
	if len(producers) == 0 {
		return out, nil
	}
	listed, err := kadm.NewClient(s.cluster.cl).ListTransactions(ctx, producers, nil)
	if err != nil {
		return out, fmt.Errorf("ask whose the open transactions are: %w", err)
	}
	described, err := s.cluster.describe(ctx, listed.TransactionalIDs()...)
	for _, d := range described {
		out[d.ProducerID] = d
	}
	return out, err
}

// attribute says whose a transaction is, and what ends it; state is what its coordinator says of it.
func (s *transactional[T]) attribute(h *sinks.Held, producer int64, state string) {
	broker := "the broker, when its timeout has passed"
	if h.Left >= 0 {
		broker = fmt.Sprintf("the broker, in %s", h.Left.Round(time.Second))
	}
	attempt, subtask, _, own := s.ids.Parse(h.Transaction)
	job, weir := s.ids.Job(h.Transaction)
	switch {
	case h.Transaction == "":
		h.Owner = fmt.Sprintf("the producer with id %d, of whose transaction the coordinators tell nothing: it hangs, or the right Describe on its id is missing", producer)
		h.Ends = "kafka-transactions.sh find-hanging and abort, when it hangs"
	case own && attempt == s.place.Attempt && !s.place.SettleOnly:
		h.Own, h.Current = true, true
		h.Owner = fmt.Sprintf("subtask %d of sink %s of this job's running attempt", subtask, s.place.UID)
		h.Ends = "its commit after the next completed checkpoint"
	case own:
		h.Own = true
		h.Owner = fmt.Sprintf("subtask %d of sink %s of this job's former attempt %d", subtask, s.place.UID, attempt)
		h.Ends = "the fencing of that attempt, 'weir txn commit' or 'weir txn abort', or " + broker
	case weir && job == s.place.JobID:
		h.Own = true
		h.Owner = "another sink of this job"
		h.Ends = "its commit after the next completed checkpoint, or " + broker
	case weir:
		h.Owner = "the Weir job " + job + " of this cluster"
		h.Ends = fmt.Sprintf("that job ('weir txn list %s' tells more), or %s", job, broker)
	default:
		h.Owner = fmt.Sprintf("a producer that is none of this cluster's: transactional id %q, producer id %d", h.Transaction, producer)
		h.Ends = "that producer, or " + broker
	}
	if slices.Contains([]string{"CompleteCommit", "CompleteAbort", "Empty"}, state) {
		h.Ends = fmt.Sprintf("nobody, if it is still here in a minute: it has ended for its coordinator (%s), "+
			"so that it hangs, which kafka-transactions.sh find-hanging and abort end", state)
	}
}

// Resolve implements sinks.Inspector.
func (s *transactional[T]) Resolve(ctx context.Context, id string, c sinks.Committable, commit bool) (already bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.settings.deadline)
	defer cancel()
	if c.Payload != nil {
		p, err := decodeCommittable(c)
		if err != nil {
			return false, err
		}
		return s.resolvePrepared(ctx, p, commit)
	}
	if _, _, _, own := s.ids.Parse(id); !own {
		return false, fmt.Errorf("%w: %s", sinks.ErrNotFound, id)
	}
	described, err := s.cluster.describe(ctx, id)
	if err != nil {
		return false, fmt.Errorf("%w: %w", sinks.ErrRetriable, err)
	}
	d, known := described[id]
	if !known {
		return false, fmt.Errorf("%w: the broker does not know %s", sinks.ErrNotFound, id)
	}
	p := &prepared{ID: id, Identity: Identity{ProducerID: d.ProducerID, ProducerEpoch: d.ProducerEpoch, EndTxnVersion: EndTxnV1}}
	if s.v2 {
		p.Identity.EndTxnVersion = EndTxnV2
	}
	switch ended := endedAs[d.State]; {
	case d.State == stateOngoing:
		return false, s.end(ctx, p, commit)
	case ended == sinks.TransactionCommitted && !commit:
		return false, fmt.Errorf("transaction %s: %w", id, sinks.ErrCommitted)
	case ended == sinks.TransactionAborted && commit:
		return false, fmt.Errorf("transaction %s: %w: it is aborted", id, sinks.ErrLost)
	case ended != 0:
		return true, nil
	}
	return false, fmt.Errorf("%w: nothing is open on %s", sinks.ErrNotFound, id)
}

func (s *transactional[T]) resolvePrepared(ctx context.Context, p *prepared, commit bool) (already bool, err error) {
	before, err := s.cluster.prove(ctx, p)
	if err != nil {
		return false, fmt.Errorf("look for the outcome of transaction %s: %w: %w", p.ID, sinks.ErrRetriable, err)
	}
	switch {
	case before == verdictCommitted && commit, before == verdictLost && !commit:
		return true, nil
	case before == verdictCommitted:
		return false, fmt.Errorf("transaction %s: %w", p.ID, sinks.ErrCommitted)
	case commit:
		return false, s.cluster.finish(ctx, p)
	case before == verdictGone:
		return false, fmt.Errorf("transaction %s: %w: the partitions no longer hold what would prove it", p.ID, sinks.ErrUnknown)
	}
	return false, s.end(ctx, p, false)
}

// end ends an open transaction by its identity.
func (s *transactional[T]) end(ctx context.Context, p *prepared, commit bool) error {
	asked := map[bool]answers.Step{true: answers.Commit, false: answers.Abort}[commit]
	answer := s.cluster.endTxn(ctx, p, commit)
	switch after := answers.React(asked, answer); {
	case after == answers.Done:
		return nil
	case after == answers.Look && !commit && p.Topics != nil:
		if proof, err := s.cluster.prove(ctx, p); err == nil && proof == verdictLost {
			return nil
		}
	}
	return fmt.Errorf("end transaction %s: %w: %w", p.ID, sinks.ErrRetriable, answers.Failure(asked, answer, onTransaction("Write", p.ID)))
}
