package driver_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
)

// canceledJobs are entries of jobs that were canceled before they had a checkpoint; unsettled tells what is left of one.
func canceledJobs(n int, unsettled func(i int) string) (out []*raftv1.Command) {
	graph := &jobv1.Graph{Name: "m", Vertices: []*jobv1.Vertex{{Id: "v", Parallelism: 1}}}
	canceled := jobv1.JobState_JOB_STATE_CANCELED
	for i := range n {
		id := fmt.Sprintf("old-%03d", i)
		out = append(out,
			&raftv1.Command{Command: &raftv1.Command_CreateJob{CreateJob: &raftv1.CreateJob{Job: &raftv1.JobRecord{Id: id, RequestId: id, Name: "m", Graph: graph}}}},
			&raftv1.Command{Command: &raftv1.Command_EndJob{EndJob: &raftv1.EndJob{JobId: id, Target: canceled}}},
			&raftv1.Command{Command: &raftv1.Command_RecordResult{RecordResult: &raftv1.RecordResult{JobId: id, State: canceled, Unsettled: unsettled(i)}}},
		)
	}
	return out
}

// The oldest of many ended jobs are forgotten, but none with transactions that somebody has to end.
func TestAnUnsettledJobIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		former := canceledJobs(205, func(i int) string {
			if i == 1 {
				return "the database was away"
			}
			return ""
		})
		without := func(g *jobv1.Graph) { g.Vertices[0].Operators[0].TransactionSlots = 0 }
		f := inquirable(setup{former: former, graph: without}).begin(t)
		f.deploy(1, theTM)
		require.NoError(t, f.manager.Cancel(t.Context(), jobID, "c"))
		f.exits(1)
		time.Sleep(time.Second)
		require.Nil(t, f.record(), "it is the oldest")
		known := func(i int) bool {
			_, ok := f.log.View().Job(fmt.Sprintf("old-%03d", i))
			return ok
		}
		var forgotten []int
		for i := range 205 {
			if !known(i) {
				forgotten = append(forgotten, i)
			}
		}
		require.Equal(t, []int{0, 2, 3, 4}, forgotten, "all but the 200 newest that nobody needs")
	})
}
