package sinks_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// shown is a fake whose transactions can be looked at. Committable "n" is called t-n, of attempt 7.
type shown struct {
	fake
	others []sinks.Transaction
	states map[string]sinks.TransactionState // by id; prepared otherwise
	losses map[string]*sinks.LostError       // by payload
	ended  []sinks.Transaction
	away   error // of Inspect
	none   bool  // Inspect shows nothing
}

func (s *shown) Inspect(_ context.Context, pending []sinks.Committable, _ operator.Scope) (sinks.Inspection, error) {
	if s.none {
		return sinks.Inspection{}, s.away
	}
	in := sinks.Inspection{Others: s.others, Ended: s.ended}
	for _, c := range pending {
		t := sinks.Transaction{ID: "t-" + string(c.Payload), Attempt: 7, State: sinks.TransactionPrepared, Age: time.Second, Left: -1}
		if state, ok := s.states[t.ID]; ok {
			t.State = state
		}
		in.Pending = append(in.Pending, t)
	}
	return in, errors.Join(s.away, s.call("inspect %d", len(pending)))
}

func (s *shown) Resolve(_ context.Context, id string, c sinks.Committable, commit bool) (bool, error) {
	return false, s.call("resolve %s %q %v", id, c.Payload, commit)
}

func (s *shown) TransactionTimeout() time.Duration { return time.Minute }

func (s *shown) RecoverCommit(_ context.Context, cs []sinks.Committable) error {
	var errs []error
	for _, c := range cs {
		if l := s.losses[string(c.Payload)]; l != nil {
			errs = append(errs, l)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return s.call("recovered %d", len(cs))
}

func openShown(t *testing.T, s *shown, change func(*operator.Runtime)) (operator.Instance, *operator.Runtime) {
	t.Helper()
	instance, err := sinks.TwoPhase(sinks.TwoPhaseConfig[int, int]{
		Kind: "fake", RetryLimit: time.Second, New: func() (sinks.TwoPhaseCommitSink[int, int], error) { return s, nil },
	}).NewInstance(graph.ExactlyOnce)
	require.NoError(t, err)
	rt := &operator.Runtime{
		Operator: graph.Operator{UID: "out"}, Clock: clock{}, Logger: slog.New(slog.DiscardHandler), Stats: &operator.Stats{}, Attempt: 7,
	}
	if change != nil {
		change(rt)
	}
	require.NoError(t, instance.Open(t.Context(), rt))
	t.Cleanup(func() { require.NoError(t, instance.Close()) })
	return instance, rt
}

func restored(checkpoint uint64, payload string) *snapshotv1.Committable {
	return &snapshotv1.Committable{Checkpoint: checkpoint, Version: 1, Payload: []byte(payload)}
}

func lostOf(payload string, unknown bool) *sinks.LostError {
	return &sinks.LostError{
		Transaction: "t-" + payload, Payload: []byte(payload), Parts: []sinks.Part{{Place: "orders/3", Records: 4}, {Place: "orders/4", Records: 5}}, Unknown: unknown,
	}
}

func TestRestoredLossesAreToldEachWithItsCheckpoint(t *testing.T) {
	aborted := lostOf("a", false)
	aborted.Aborted = true
	s := &shown{losses: map[string]*sinks.LostError{"a": aborted, "c": lostOf("c", true)}}
	i, _ := openShown(t, s, nil)
	err := i.(operator.Committer).RecoverCommit(t.Context(), []*snapshotv1.Committable{restored(3, "a"), restored(4, "b"), restored(5, "c")})
	require.ErrorIs(t, err, sinks.ErrLost)
	require.Equal(t, operator.ClassDataLoss, operator.ClassOf(err))
	told := sinks.LossesOf(err)
	require.Len(t, told, 2)
	require.EqualValues(t, 3, told[0].GetCheckpoint())
	require.EqualValues(t, 9, told[0].GetRecords())
	require.Equal(t, "out", told[0].GetSink())
	require.EqualValues(t, 5, told[1].GetCheckpoint())
	require.True(t, told[1].GetUnknown())
	require.Contains(t, err.Error(), "checkpoint 3: transaction t-a was aborted after it was prepared: 9 records, orders/3 (4 records), orders/4 (5 records)")
	require.Empty(t, i.(operator.LossReporter).Lost(), "nothing is accepted")
	require.Contains(t, lostOf("a", false).Error(), "transaction t-a was prepared and is lost: 9 records", "nobody may have aborted it")
}

func TestAcceptedLossesAreDroppedAndTheOthersCommitted(t *testing.T) {
	for policy, dropped := range map[operator.LossPolicy]int{operator.RefuseLoss: 0, operator.AcceptLost: 1, operator.AcceptUnknown: 2} {
		s := &shown{losses: map[string]*sinks.LostError{"a": lostOf("a", false), "c": lostOf("c", true)}}
		i, _ := openShown(t, s, func(rt *operator.Runtime) { rt.Losses = policy })
		err := i.(operator.Committer).RecoverCommit(t.Context(), []*snapshotv1.Committable{restored(3, "a"), restored(4, "b"), restored(5, "c")})
		require.Len(t, i.(operator.LossReporter).Lost(), dropped)
		if policy == operator.AcceptUnknown {
			require.NoError(t, err)
			require.Contains(t, s.log(), "recovered 1", "what is not lost is committed")
		} else {
			require.Error(t, err)
		}
	}
}

func TestTransactionsOfARunningJobAreShownWithWhatTheDriverKnows(t *testing.T) {
	s := &shown{others: []sinks.Transaction{{ID: "open", Attempt: 7, State: sinks.TransactionOpen}, {ID: "former", Attempt: 6, State: sinks.TransactionOpen}}}
	i, _ := openShown(t, s, nil)
	collect(t, i, 1)
	_, err := i.Snapshot(t.Context(), operator.Barrier{Checkpoint: 3})
	require.NoError(t, err)
	view, err := i.(operator.TransactionInspector).InspectTransactions(t.Context(), nil, operator.Scope{})
	require.NoError(t, err)
	require.Len(t, view.Transactions, 3)
	mine := view.Transactions[0]
	require.Equal(t, "t-1", mine.GetId())
	require.EqualValues(t, 3, mine.GetCheckpoint())
	require.False(t, mine.GetListed(), "the checkpoint is not complete")
	require.True(t, mine.GetCurrent())
	require.Equal(t, jobv1.TransactionState_TRANSACTION_STATE_PREPARED, mine.GetState())
	require.EqualValues(t, 1000, mine.GetAgeMs())
	require.EqualValues(t, -1, mine.GetLeftMs())
	require.True(t, view.Transactions[1].GetCurrent())
	require.False(t, view.Transactions[2].GetCurrent())
	done := make(chan error, 1)
	i.(operator.Committer).Commit(3, func(err error) { done <- err })
	require.NoError(t, <-done)
	view, err = i.(operator.TransactionInspector).InspectTransactions(t.Context(), nil, operator.Scope{})
	require.NoError(t, err)
	require.True(t, view.Transactions[0].GetListed())
}

func TestSafeguardsOfTransactionsEndedByHand(t *testing.T) {
	listed := []*snapshotv1.Committable{restored(3, "a")}
	for name, test := range map[string]struct {
		settle, commit, force bool
		id                    string
		state                 sinks.TransactionState
		refused, unknown      bool
	}{
		"commit what a checkpoint lists":       {settle: true, commit: true, id: "t-a"},
		"abort what a checkpoint lists":        {settle: true, id: "t-a", refused: true},
		"abort it by force":                    {settle: true, id: "t-a", force: true},
		"commit what no checkpoint lists":      {settle: true, commit: true, id: "former", refused: true},
		"commit that by force":                 {settle: true, commit: true, id: "former", force: true},
		"abort what no checkpoint lists":       {settle: true, id: "former"},
		"abort what is committed already":      {settle: true, id: "t-a", state: sinks.TransactionCommitted},
		"commit what is not there":             {settle: true, commit: true, id: "other", unknown: true},
		"commit what is not there, forced":     {settle: true, commit: true, force: true, id: "other", unknown: true},
		"abort of another subtask":             {id: "other", force: true, unknown: true},
		"abort of the running attempt":         {id: "open", refused: true},
		"abort of the running attempt, forced": {id: "open", force: true, refused: true},
		"commit of the running attempt":        {id: "t-a", commit: true, force: true, refused: true},
		"abort of a former attempt":            {id: "former"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shown{
				others: []sinks.Transaction{{ID: "open", Attempt: 7, State: sinks.TransactionOpen}, {ID: "former", Attempt: 6, State: sinks.TransactionOpen}},
				states: map[string]sinks.TransactionState{},
			}
			if test.state != 0 {
				s.states["t-a"] = test.state
			}
			i, _ := openShown(t, s, func(rt *operator.Runtime) { rt.SettleOnly = test.settle })
			_, err := i.(operator.TransactionInspector).ResolveTransaction(t.Context(), operator.Resolution{
				ID: test.id, Commit: test.commit, Force: test.force, Restored: listed,
			})
			asked := len(s.log()) > 2 // beyond open and inspect
			switch {
			case test.refused:
				require.ErrorIs(t, err, operator.ErrSafeguard)
				require.False(t, asked, s.log())
				return
			case test.unknown:
				require.ErrorIs(t, err, sinks.ErrNotFound)
				require.False(t, asked, "nobody knows whether a checkpoint lists it: %v", s.log())
				return
			}
			require.NoError(t, err)
			require.True(t, asked, s.log())
		})
	}
}

func TestALossThatIsFoundByHandNamesSinkAndCheckpoint(t *testing.T) {
	s := &shown{states: map[string]sinks.TransactionState{"t-a": sinks.TransactionAborted}}
	s.failure = map[string]error{`resolve t-a "a" true`: &sinks.LostError{Transaction: "t-a", Aborted: true}}
	i, _ := openShown(t, s, func(rt *operator.Runtime) { rt.SettleOnly = true })
	_, err := i.(operator.TransactionInspector).ResolveTransaction(t.Context(), operator.Resolution{
		ID: "t-a", Commit: true, Restored: []*snapshotv1.Committable{restored(3, "a")},
	})
	require.ErrorIs(t, err, sinks.ErrLost)
	require.ErrorContains(t, err, "sink out: checkpoint 3: transaction t-a was aborted")
}

// Whoever repeats the end of a transaction that no checkpoint lists is told how it has ended, and nothing is done.
func TestATransactionThatHasEndedBefore(t *testing.T) {
	for name, test := range map[string]struct {
		commit, already bool
		state           sinks.TransactionState
		err             error
	}{
		"committed again":          {commit: true, state: sinks.TransactionCommitted, already: true},
		"aborted again":            {state: sinks.TransactionAborted, already: true},
		"aborted after a commit":   {state: sinks.TransactionCommitted, err: sinks.ErrCommitted},
		"committed after an abort": {commit: true, state: sinks.TransactionAborted, err: sinks.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shown{ended: []sinks.Transaction{{ID: "former", State: test.state}}}
			i, _ := openShown(t, s, nil)
			already, err := i.(operator.TransactionInspector).ResolveTransaction(t.Context(), operator.Resolution{ID: "former", Commit: test.commit})
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.already, already)
			require.Len(t, s.log(), 2, "it is opened and asked: %v", s.log())
		})
	}
}

// Places of which nothing can be told do not keep an operator from a transaction that is shown.
func TestASinkThatCannotBeAsked(t *testing.T) {
	away := errors.New("the broker is away")
	for name, test := range map[string]struct {
		id   string
		none bool // nothing is shown
		err  error
	}{
		"nothing is shown": {id: "t-a", none: true, err: sinks.ErrNotAsked},
		"it is not shown":  {id: "other", err: sinks.ErrNotAsked},
		"it is shown":      {id: "t-a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shown{away: away, none: test.none}
			i, _ := openShown(t, s, func(rt *operator.Runtime) { rt.SettleOnly = true })
			_, err := i.(operator.TransactionInspector).ResolveTransaction(t.Context(), operator.Resolution{
				ID: test.id, Commit: true, Restored: []*snapshotv1.Committable{restored(3, "a")},
			})
			require.ErrorIs(t, err, test.err)
			require.NotErrorIs(t, err, sinks.ErrRetriable, "the outcome is known: nothing was done")
			if test.err != nil {
				require.ErrorIs(t, err, away)
			}
		})
	}
}

func TestASinkThatShowsNothingHasNoSuchTransaction(t *testing.T) {
	i := open(t, &fake{})
	defer func() { require.NoError(t, i.Close()) }()
	_, err := i.(operator.TransactionInspector).ResolveTransaction(t.Context(), operator.Resolution{ID: "x"})
	require.ErrorIs(t, err, sinks.ErrNotFound)
	_, err = i.(operator.TransactionInspector).InspectTransactions(t.Context(), nil, operator.Scope{})
	require.ErrorContains(t, err, "does not show")
}

func TestAgeOfTheOldestTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, rt := openShown(t, &shown{}, nil)
		oldest := func() time.Duration {
			age, timeout := rt.Stats.Transactions.Oldest()
			require.Equal(t, time.Minute, timeout)
			return age
		}
		require.Zero(t, oldest())
		collect(t, i, 1)
		time.Sleep(3 * time.Second)
		require.Equal(t, 3*time.Second, oldest())
		_, err := i.Snapshot(t.Context(), operator.Barrier{Checkpoint: 1})
		require.NoError(t, err)
		time.Sleep(time.Second)
		collect(t, i, 2)
		time.Sleep(time.Second)
		require.Equal(t, 5*time.Second, oldest(), "a prepared transaction counts until it is committed")
		done := make(chan error, 1)
		i.(operator.Committer).Commit(1, func(err error) { done <- err })
		require.NoError(t, <-done)
		require.Equal(t, time.Second, oldest())
	})
}
