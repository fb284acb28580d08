package explain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/jobmanager/explain"
)

var now = time.Date(2026, 11, 29, 3, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func task(name string, a *jobv1.TaskActivity) explain.Task {
	return explain.Task{
		Name: name, TaskManager: "tm1", Host: "node1", At: now,
		Statistics: &jobv1.TaskStatistics{Activity: a},
	}
}

// running is a job in which nothing is wrong.
func running(tasks ...explain.Task) explain.Facts {
	f := explain.Facts{
		Now: now, JobID: "j1", State: jobv1.JobState_JOB_STATE_RUNNING, Attempt: 2, Phase: explain.Running, Since: ago(time.Hour),
		Periodic: true, Interval: time.Second, Last: &explain.Completed{ID: 7, At: ago(800 * time.Millisecond), Duration: 40 * time.Millisecond},
		RecordsPerSecond: 1234, Lag: 5, Tasks: tasks, Budget: explain.Budget{Max: 10, Window: 10 * time.Minute},
	}
	w := explain.Worker{TaskManager: "tm1", Host: "node1", Connected: true}
	for _, t := range tasks {
		w.Tasks = append(w.Tasks, t.Name)
	}
	f.Workers = []explain.Worker{w}
	return f
}

func with(f explain.Facts, change func(*explain.Facts)) explain.Facts {
	change(&f)
	return f
}

func inProgress(age time.Duration, missing ...string) *explain.Checkpoint {
	return &explain.Checkpoint{ID: 8, Since: ago(age), Timeout: time.Minute, Missing: missing, Tasks: 4}
}

func TestExplain(t *testing.T) {
	quiet := func(ms uint64) *uint64 { return &ms }
	split := func(name string, watermark *int64, quiet *uint64, lag int64) *jobv1.SplitProgress {
		return &jobv1.SplitProgress{Name: name, WatermarkMs: watermark, QuietMs: quiet, LagRecords: lag}
	}
	at := func(d time.Duration) *int64 { return proto.Int64(ago(d).UnixMilli()) }
	failure := &jobv1.Failure{AtMs: ago(3 * time.Second).UnixMilli(), Attempt: 2, Task: "fuse[0]", Host: "node1", Message: "run: panic: boom"}
	for name, test := range map[string]struct {
		facts   explain.Facts
		kinds   []string
		waiting string   // all of it
		says    []string // parts of the first text, in order of appearance not
		advice  string   // a part of the first advice
	}{
		"runs normally": {
			running(task("in[0]", nil)),
			[]string{explain.KindNormal},
			"",
			[]string{"It runs normally: 1234 records/s, checkpoint 7 completed 800ms ago in 40ms, 5 records still to read."},
			"",
		},
		"idle": {
			with(running(), func(f *explain.Facts) { f.RecordsPerSecond, f.Lag, f.Last.At = 0, 0, ago(time.Hour) }),
			[]string{explain.KindNormal},
			"",
			[]string{"checkpoint 7 completed 1h ago", "Nothing has changed since"},
			"",
		},
		"slots": {
			with(running(), func(f *explain.Facts) {
				f.Phase, f.Since, f.MissingSlots = explain.Slots, ago(90*time.Second), "needs 4 slots, 1 free on 1 TaskManager; start more"
				f.TaskManagers = []explain.TaskManager{{ID: "tm1", Host: "node1", Slots: 2, Free: 1}, {ID: "tm2", Host: "node2", Slots: 2}}
			}),
			[]string{explain.KindSlots},
			"needs 4 slots, 1 free on 1 TaskManager; start more",
			[]string{"For 1m30s it has been waiting", "it needs 4 slots, 1 free on 1 TaskManager.", "tm1 on node1 has 1 of 2 slots free", "tm2 on node2 has 0 of 2"},
			"lower -p",
		},
		"new leader": {
			with(running(), func(f *explain.Facts) {
				f.Phase, f.Since, f.Until, f.Absent = explain.Returning, ago(time.Second), now.Add(4*time.Second), []string{"tm2 on node2"}
			}),
			[]string{explain.KindLeader},
			"TaskManagers to come back to the new leader: tm2 on node2",
			[]string{"A new JobManager leads since 1s ago", "tm2 on node2", "goes on without them in 4s"},
			"weir members",
		},
		"prepares, the broker does not answer": {
			with(running(task("in[0]", &jobv1.TaskActivity{
				Doing: "opening in", ForMs: 9000, Waits: []*jobv1.TaskWait{{What: "Kafka at b:9092 to answer", ForMs: 8000}},
			})), func(f *explain.Facts) { f.Phase, f.Since = explain.Preparing, ago(9*time.Second) }),
			[]string{explain.KindPrepare},
			"tasks to prepare, for 9s: in[0] on host node1",
			[]string{"Attempt 2 has been waiting", "0 of 1 workers have prepared", "in[0] on node1 is opening in; it waits for Kafka at b:9092 to answer, for 8s."},
			"weir logs j1",
		},
		"prepares, the process is being started": {
			with(running(), func(f *explain.Facts) {
				f.Phase, f.Since = explain.Preparing, ago(time.Second)
				f.Workers = []explain.Worker{
					{TaskManager: "tm1", Host: "node1", Connected: true, Tasks: []string{"in[0]"}, Answered: true},
					{TaskManager: "tm2", Host: "node2", Connected: true, Tasks: []string{"in[1]"}},
				}
			}),
			[]string{explain.KindPrepare},
			"tasks to prepare, for 1s: in[1] on host node2",
			[]string{"1 of 2 workers have prepared", "On node2 (tm2) no task has reported yet"},
			"",
		},
		"back-off": {
			with(running(), func(f *explain.Facts) {
				f.State, f.Phase, f.Until, f.Failure = jobv1.JobState_JOB_STATE_RESTARTING, explain.BackOff, now.Add(8*time.Second), failure
				f.Budget.Used = 3
			}),
			[]string{explain.KindBackOff, explain.KindFailure},
			"the next attempt, in 8s (fuse[0] on node1: run: panic: boom)",
			[]string{"Attempt 3 begins in 8s", "failed 3 times within the last 10m", "more than 10"},
			"",
		},
		"settling": {
			with(running(), func(f *explain.Facts) {
				f.State, f.Target, f.Settling = jobv1.JobState_JOB_STATE_SETTLING, jobv1.JobState_JOB_STATE_CANCELED, true
				f.Phase, f.Until, f.SettleUntil, f.Unsettled = explain.BackOff, now.Add(time.Second), now.Add(time.Minute), "no broker"
			}),
			[]string{explain.KindSettle},
			"the next try to commit what is completed, in 1s",
			[]string{"It is ending as CANCELED", "The last try did not succeed: no broker", "given up in 1m"},
			"brokers of its sinks",
		},
		"checkpoint, user code at one batch": {
			with(running(
				task("in[0]", &jobv1.TaskActivity{Doing: "processing records in in", ForMs: 11000, BlockedOn: "slow[0]", BlockedMs: 11000}),
				task("slow[0]", &jobv1.TaskActivity{Doing: "processing records in slow", ForMs: 12000, Queued: 9}),
				task("out[0]", &jobv1.TaskActivity{}),
			), func(f *explain.Facts) { f.Checkpoint = inProgress(14*time.Second, "in[0]", "slow[0]", "out[0]") }),
			[]string{explain.KindCheckpoint},
			"checkpoint 8, for 14s: slow[0] on node1 is processing records in slow and has been at one batch for 12s; the barrier waits behind it",
			[]string{"3 of 4 tasks have not acknowledged", "slow[0] on node1 is processing", "not come through yet to in[0] and out[0]", "fails after 1m"},
			"SIGQUIT",
		},
		"checkpoint, one input's barrier is missing": {
			with(running(
				task("in[1]", &jobv1.TaskActivity{}),
				task("sum[0]", &jobv1.TaskActivity{
					Checkpoint: 8, Stage: jobv1.CheckpointStage_CHECKPOINT_STAGE_ALIGNING, StageMs: 4000, MissingInputs: []string{"in[1]"},
				}),
			), func(f *explain.Facts) { f.Checkpoint = inProgress(5*time.Second, "sum[0]") }),
			[]string{explain.KindCheckpoint},
			"checkpoint 8, for 5s: sum[0] on node1 has the barrier of some inputs and, for 4s, not of in[1]",
			[]string{"1 of 4 tasks has not acknowledged"},
			"",
		},
		"checkpoint, the blocked one's barrier is missing": {
			with(running(
				task("in[0]", &jobv1.TaskActivity{Doing: "processing records in in", BlockedOn: "slow[0]", BlockedMs: 900}),
				task("slow[0]", &jobv1.TaskActivity{
					Checkpoint: 8, Stage: jobv1.CheckpointStage_CHECKPOINT_STAGE_ALIGNING, StageMs: 4000, MissingInputs: []string{"in[0]"},
					Doing: "processing records in slow", ForMs: 20, Queued: 9,
				}),
			), func(f *explain.Facts) { f.Checkpoint = inProgress(5*time.Second, "in[0]", "slow[0]") }),
			[]string{explain.KindCheckpoint},
			"checkpoint 8, for 5s: slow[0] on node1 works its input off before the barrier of in[0]: 0 records/s, 9 batches in its queues",
			[]string{"not come through yet to in[0]"},
			"SIGQUIT",
		},
		"checkpoint, upload": {
			with(running(task("sum[0]", &jobv1.TaskActivity{Checkpoint: 8, Stage: jobv1.CheckpointStage_CHECKPOINT_STAGE_WRITING, StageMs: 4000})),
				func(f *explain.Facts) { f.Checkpoint = inProgress(5*time.Second, "sum[0]") }),
			[]string{explain.KindCheckpoint},
			"checkpoint 8, for 5s: sum[0] on node1 is writing its state to checkpoint storage, for 4s",
			nil, "slow or full",
		},
		"checkpoint, metadata": {
			with(running(), func(f *explain.Facts) {
				f.Checkpoint = inProgress(5 * time.Second)
				f.Checkpoint.Stage = explain.Metadata
			}),
			[]string{explain.KindCheckpoint},
			"checkpoint 8, for 5s: its metadata file is being written", nil, "checkpoint storage",
		},
		"checkpoint that is not slow for this job": {
			with(running(), func(f *explain.Facts) {
				f.Checkpoint = inProgress(5*time.Second, "in[0]")
				f.Last.Duration = 10 * time.Second
			}),
			[]string{explain.KindNormal, explain.KindCheckpoint},
			"", nil, "",
		},
		"commit": {
			with(running(task("out[0]", &jobv1.TaskActivity{Waits: []*jobv1.TaskWait{{What: "Kafka at b:9092 to commit checkpoint 7", ForMs: 6000, LastError: "no answer"}}})),
				func(f *explain.Facts) {
					f.Commit = &explain.Commit{Checkpoint: 7, Since: ago(6 * time.Second), Workers: []string{"tm1"}}
				}),
			[]string{explain.KindCommit, explain.KindExternal},
			"the commit of checkpoint 7, for 6s: out[0] on node1 waits for Kafka at b:9092 to commit checkpoint 7",
			[]string{"Checkpoint 7 is completed, but for 6s", "out[0] on node1 waits for Kafka at b:9092 to commit checkpoint 7, for 6s (the last try: no answer)."},
			"by itself when it answers",
		},
		"broker, seen by many": {
			with(running(
				task("in[0]", &jobv1.TaskActivity{Waits: []*jobv1.TaskWait{{What: "Kafka at b:9092 to answer", ForMs: 3000}}}),
				task("in[1]", &jobv1.TaskActivity{Waits: []*jobv1.TaskWait{{What: "Kafka at b:9092 to answer", ForMs: 5000, LastError: "refused"}}}),
			), func(*explain.Facts) {}),
			[]string{explain.KindExternal},
			"Kafka at b:9092 to answer, for 5s (in[0] on node1 and in[1] on node1)",
			[]string{"in[0] on node1 and in[1] on node1 wait for Kafka at b:9092 to answer, for 5s (the last try: refused)."},
			"cut off",
		},
		"an answer that takes a moment": {
			running(task("in[0]", &jobv1.TaskActivity{Waits: []*jobv1.TaskWait{{What: "Kafka at b:9092 to answer", ForMs: 900}}})),
			[]string{explain.KindNormal},
			"", nil, "",
		},
		"event time, silent partition": {
			running(task("in[0]", &jobv1.TaskActivity{
				EventTime: true, IdleTimeoutMs: 30000, HighestWatermarkMs: at(time.Second),
				Splits: []*jobv1.SplitProgress{split("partition 3 of topic orders", nil, quiet(12000), 0)},
			})),
			[]string{explain.KindWatermark},
			"event time, held back by partition 3 of topic orders, silent for 12s",
			[]string{"held back by partition 3 of topic orders (read by in[0] on node1)", "no new record for 12s, and none at all before", "left out once it has been silent for 30s, in 18s"},
			"WithIdleTimeout",
		},
		"event time, partition that catches up": {
			running(
				task("in[0]", &jobv1.TaskActivity{
					EventTime: true, HighestWatermarkMs: at(time.Hour),
					Splits: []*jobv1.SplitProgress{split("partition 0", at(time.Hour), nil, 120000)},
				}),
				task("in[1]", &jobv1.TaskActivity{
					EventTime: true, HighestWatermarkMs: at(time.Minute),
					Splits: []*jobv1.SplitProgress{split("partition 1", at(time.Minute), nil, 0)},
				}),
			),
			[]string{explain.KindNormal, explain.KindWatermark},
			"", nil, "",
		},
		"event time, all close": {
			running(task("in[0]", &jobv1.TaskActivity{
				EventTime: true, HighestWatermarkMs: at(time.Second), Splits: []*jobv1.SplitProgress{split("p", at(5*time.Second), quiet(9000), 0)},
			})),
			[]string{explain.KindNormal},
			"", nil, "",
		},
		"back-pressure": {
			running(
				task("in[0]", &jobv1.TaskActivity{Doing: "processing records in in", BlockedOn: "slow[0]", BlockedMs: 4000}),
				task("slow[0]", &jobv1.TaskActivity{Doing: "processing records in slow", ForMs: 4000}),
			),
			[]string{explain.KindPressure},
			"slow[0] on node1 to take records in (its input has been full for 4s)",
			[]string{"in[0] on node1 cannot pass its records on", "slow[0] on node1 is processing records in slow, for 4s."},
			"SIGQUIT",
		},
		"worker that does not report": {
			with(running(task("in[0]", nil)), func(f *explain.Facts) { f.Tasks[0].At = ago(9 * time.Second) }),
			[]string{explain.KindUnheard},
			"a sign of life of the worker on node1",
			[]string{"has reported nothing for 9s"},
			"started elsewhere",
		},
		"worker that does not report as nothing changes": {
			with(running(task("in[0]", nil)), func(f *explain.Facts) { f.Tasks[0].At, f.Tasks[0].Quiet = ago(14*time.Second), 10*time.Second }),
			[]string{explain.KindNormal},
			"", nil, "",
		},
		"worker that does not report when it should": {
			with(running(task("in[0]", nil)), func(f *explain.Facts) { f.Tasks[0].At, f.Tasks[0].Quiet = ago(16*time.Second), 10*time.Second }),
			[]string{explain.KindUnheard},
			"a sign of life of the worker on node1",
			[]string{"has reported nothing for 16s"},
			"started elsewhere",
		},
		"TaskManager out of reach": {
			with(running(task("in[0]", nil)), func(f *explain.Facts) { f.Workers[0].Connected = false }),
			[]string{explain.KindUnheard},
			"TaskManager tm1 on node1 to come back", nil, "",
		},
		"runs again after a failure, checkpoints fail": {
			with(running(), func(f *explain.Facts) {
				f.Failure, f.FailedCheckpoints, f.CheckpointFailure = failure, 2, "no space left"
			}),
			[]string{explain.KindNormal, explain.KindCheckpoints, explain.KindFailure},
			"", nil, "",
		},
		"fails again and again": {
			with(running(), func(f *explain.Facts) {
				f.Since, f.Failure, f.FailureAt, f.Budget.Used, f.RecordsPerSecond = ago(time.Second), failure, ago(3*time.Second), 4, -1
			}),
			[]string{explain.KindRestarted, explain.KindFailure},
			"",
			[]string{"It runs again for 1s, after 4 failures within the last 10m (with more than 10 it fails for good): checkpoint 7"},
			"",
		},
		"has just recovered": {
			with(running(), func(f *explain.Facts) {
				f.Since, f.Failure, f.FailureAt, f.Budget.Used = ago(time.Second), failure, ago(3*time.Second), 1
			}),
			[]string{explain.KindRestarted, explain.KindFailure},
			"",
			[]string{"It runs again for 1s, after a failure: 1234 records/s"},
			"",
		},
		"pauses since the broker does not answer": {
			with(running(), func(f *explain.Facts) {
				f.Phase, f.Until, f.Failure = explain.BackOff, now.Add(8*time.Second), &jobv1.Failure{Attempt: 2, Message: "no broker answers", Uncounted: true}
				f.Budget.Used = 3
			}),
			[]string{explain.KindBackOff, explain.KindFailure},
			"the next attempt, in 8s (no broker answers)",
			[]string{"does not count towards its limit: it is tried again for as long as that lasts"},
			"",
		},
		"stop": {
			with(running(), func(f *explain.Facts) { f.Stop = true }),
			[]string{explain.KindStop},
			"its last checkpoint and the commit of it, to stop", nil, "",
		},
		"log": {
			with(explain.Facts{Now: now}, func(f *explain.Facts) { f.LogBusy = true }),
			[]string{explain.KindLog},
			"the log of the JobManagers", nil, "disks",
		},
		"ended": {
			with(explain.Facts{Now: now, JobID: "j1", State: jobv1.JobState_JOB_STATE_FAILED}, func(f *explain.Facts) { f.Failure = failure }),
			[]string{explain.KindEnded, explain.KindFailure},
			"",
			[]string{"it failed"},
			"--from j1@last",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := explain.Explain(test.facts)
			var kinds []string
			for _, f := range e.Findings {
				kinds = append(kinds, f.Kind)
			}
			require.Equal(t, test.kinds, kinds)
			require.Equal(t, test.waiting, e.Waiting())
			require.NotEmpty(t, e.Summary())
			for _, part := range test.says {
				require.Contains(t, e.Findings[0].Text, part)
			}
			require.Contains(t, e.Findings[0].Advice, test.advice)
		})
	}
}

// TestDurationsGrowWithTheReportsAge looks at a task that has not reported for a while: what it was at it is at longer now.
func TestDurationsGrowWithTheReportsAge(t *testing.T) {
	f := running(task("in[0]", &jobv1.TaskActivity{Waits: []*jobv1.TaskWait{{What: "Kafka to answer", ForMs: 1500}}}))
	require.Empty(t, explain.Explain(f).Waiting())
	f.Tasks[0].At = ago(time.Second)
	require.Contains(t, explain.Explain(f).Waiting(), "Kafka to answer, for 2.5s")
}

// TestAnyFactsAreExplained: whatever tasks say that they wait for, one another in a circle included, there is an explanation.
func TestAnyFactsAreExplained(t *testing.T) {
	names := []string{"a[0]", "a[1]", "b[0]", "b[1]", "nobody[0]"}
	some := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, len(names), rapid.ID)
	rapid.Check(t, func(rt *rapid.T) {
		facts := running()
		for _, name := range names[:4] {
			facts.Tasks = append(facts.Tasks, task(name, &jobv1.TaskActivity{
				Doing: rapid.SampledFrom([]string{"", "processing records"}).Draw(rt, "doing"), ForMs: rapid.Uint64Range(0, 10_000).Draw(rt, "for"),
				BlockedOn: rapid.SampledFrom(append(names, "")).Draw(rt, "blocked on"), BlockedMs: rapid.Uint64Range(0, 10_000).Draw(rt, "blocked"),
				Checkpoint: rapid.Uint64Range(7, 8).Draw(rt, "checkpoint"), MissingInputs: some.Draw(rt, "missing inputs"),
				Stage: jobv1.CheckpointStage(rapid.IntRange(0, 4).Draw(rt, "stage")), Queued: rapid.Uint64Range(0, 9).Draw(rt, "queued"),
			}))
		}
		facts.Checkpoint = inProgress(14*time.Second, some.Draw(rt, "not acknowledged")...)
		require.NotEmpty(rt, explain.Explain(facts).Findings)
	})
}
