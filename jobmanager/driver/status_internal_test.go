package driver

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

// A new leader hears of one worker after the other, and each has read millions of records under the former one.
func TestTheRateIsThatOfRecordsReadSinceTheFirstReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStatus()
		s.begin(&raftv1.JobRecord{Graph: &jobv1.Graph{Vertices: []*jobv1.Vertex{{Id: "src", Source: true}}}}, &attempt{number: 1})
		report := func(subtask uint32, read uint64) {
			s.statistics(&workerv1.Statistics{Tasks: []*jobv1.TaskStatistics{{Vertex: "src", Subtask: subtask, RecordsIn: read}}})
		}
		require.InDelta(t, -1, s.figures().RecordsPerSecond, 0, "nothing is known")
		report(0, 1e6)
		require.InDelta(t, -1, s.figures().RecordsPerSecond, 0, "one figure is no rate")
		time.Sleep(time.Second)
		report(0, 1e6+100)
		report(1, 5e6)
		require.InDelta(t, 100, s.figures().RecordsPerSecond, 0)
		time.Sleep(time.Second)
		report(0, 1e6+200)
		report(1, 5e6+50)
		require.InDelta(t, 150, s.figures().RecordsPerSecond, 0)
		s.live.Store(0)
		require.InDelta(t, -1, s.figures().RecordsPerSecond, 0, "nothing runs")
	})
}

// Workers of an idle job report seldom, and say so; then no report is no change.
func TestTheRateOfQuietWorkersIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStatus()
		s.begin(&raftv1.JobRecord{Graph: &jobv1.Graph{Vertices: []*jobv1.Vertex{{Id: "src", Source: true}}}}, &attempt{number: 1})
		report := func(read, quiet uint64) {
			s.statistics(&workerv1.Statistics{Tasks: []*jobv1.TaskStatistics{{Vertex: "src", RecordsIn: read}}, QuietMs: quiet})
		}
		report(1000, 0)
		time.Sleep(time.Second)
		report(1100, 0)
		time.Sleep(time.Second)
		report(1100, 10_000)
		require.InDelta(t, 50, s.figures().RecordsPerSecond, 0)
		time.Sleep(2 * time.Second)
		require.InDelta(t, 25, s.figures().RecordsPerSecond, 0)
		time.Sleep(3 * time.Second)
		require.InDelta(t, 0, s.figures().RecordsPerSecond, 0)
		time.Sleep(5 * time.Second)
		report(1100, 10_000)
		require.InDelta(t, 0, s.figures().RecordsPerSecond, 0)
		time.Sleep(6 * time.Second)
		report(1400, 0)
		require.InDelta(t, 60, s.figures().RecordsPerSecond, 0, "as from reports each second")
		require.InDelta(t, 300, s.reports["src[0]"].perSecond, 0, "since the last look")
		report(1400, 10_000)
		time.Sleep(15 * time.Second)
		require.InDelta(t, -1, s.figures().RecordsPerSecond, 0, "it would have reported again")
	})
}

func TestAgesGoOnWhenNothingRuns(t *testing.T) {
	list := []*jobv1.Checkpoint{{Id: 8}, {Id: 7, AgeMs: proto.Uint64(400)}}
	later := aged(list, time.Minute)
	require.Nil(t, later[0].AgeMs)
	require.EqualValues(t, 60400, later[1].GetAgeMs())
	require.EqualValues(t, 400, list[1].GetAgeMs(), "what is kept stays as it is")
}
