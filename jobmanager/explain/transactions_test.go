package explain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/jobmanager/explain"
)

func find(e explain.Explanation, kind string) *explain.Finding {
	for i := range e.Findings {
		if e.Findings[i].Kind == kind {
			return &e.Findings[i]
		}
	}
	return nil
}

func TestLostOutputIsToldWithTheChoices(t *testing.T) {
	lost := func(unknown, accepted bool) *jobv1.LostOutput {
		return &jobv1.LostOutput{
			Sink: "out", Checkpoint: 7, Transaction: "weir.c.j.out.1.0.2", Records: 12, Unknown: unknown, Accepted: accepted,
			Parts: []*jobv1.OutputPart{{Place: "orders/3", Records: 12, Detail: "offsets 5 to 16"}},
		}
	}
	f := explain.Facts{Now: now, JobID: "j1", State: jobv1.JobState_JOB_STATE_FAILED, Phase: explain.Ended, Kept: 9, Lost: []*jobv1.LostOutput{lost(false, false)}}
	x := find(explain.Explain(f), explain.KindLost)
	require.NotNil(t, x)
	require.True(t, x.Blocking)
	for _, s := range []string{"1 transactions with 12 records", "Checkpoint 7, sink out: transaction weir.c.j.out.1.0.2", "orders/3 offsets 5 to 16 (12 records)"} {
		require.Contains(t, x.Text, s)
	}
	require.Contains(t, x.Advice, "'weir submit --from j1@9 --accept-loss'")
	f.Lost = []*jobv1.LostOutput{lost(true, false)}
	require.Contains(t, find(explain.Explain(f), explain.KindLost).Advice, "--accept-unknown")
	f.Lost = []*jobv1.LostOutput{lost(false, true)}
	require.Nil(t, find(explain.Explain(f), explain.KindLost), "accepted")
}

func TestATransactionPastHalfOfItsTimeoutIsToldOf(t *testing.T) {
	of := func(age, timeout uint64) explain.Task {
		x := task("out[0]", nil)
		x.Statistics.OldestTransactionMs, x.Statistics.TransactionTimeoutMs = age, timeout
		return x
	}
	require.Nil(t, find(explain.Explain(running(of(30_000, 60_000))), explain.KindTransaction))
	require.Nil(t, find(explain.Explain(running(of(30_000, 0))), explain.KindTransaction))
	x := find(explain.Explain(running(of(31_000, 60_000), of(50_000, 60_000))), explain.KindTransaction)
	require.NotNil(t, x)
	require.Contains(t, x.Text, "out[0] on node1 has had a transaction open for 50")
	require.True(t, x.Blocking)
}

func TestOnlyTransactionsOfOthersHoldOutputBack(t *testing.T) {
	held := func(current bool, age time.Duration) *jobv1.HeldOutput {
		return &jobv1.HeldOutput{Place: "orders/3", Visible: 4, End: 9, Owner: "a stranger", Current: current, AgeMs: age.Milliseconds(), LeftMs: 1, Ends: "the broker, in 4 s"}
	}
	for name, test := range map[string]struct {
		held *jobv1.HeldOutput
		told bool
	}{
		"the job's own":  {held(true, time.Minute), false},
		"young":          {held(false, 4*time.Second), false},
		"old":            {held(false, 6*time.Second), true},
		"of unknown age": {&jobv1.HeldOutput{Place: "orders/3", AgeMs: -1, LeftMs: -1}, true},
	} {
		e := explain.Explain(with(running(), func(f *explain.Facts) { f.Held = []*jobv1.HeldOutput{test.held} }))
		require.Equal(t, test.told, find(e, explain.KindHeld) != nil, name)
	}
	e := explain.Explain(with(running(), func(f *explain.Facts) { f.Held = []*jobv1.HeldOutput{held(false, time.Minute)} }))
	require.Contains(t, e.Findings[0].Text, "Readers of orders/3 see it up to offset 4 of 9 only")
	require.Equal(t, "What ends it: the broker, in 4 s.", e.Findings[0].Advice)
	require.Contains(t, e.Waiting(), "a stranger")
}
