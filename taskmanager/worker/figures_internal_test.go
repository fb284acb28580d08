package worker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

// looks feeds the figures of ever the same task to f, each look changed by what comes before it, and tells which were reported: "." for none,
// "!" for one, "z" for one that announces quiet.
func looks(t *testing.T, f *figures, n int, change func(look int, s *jobv1.TaskStatistics)) (told string) {
	for i := range n {
		s := &jobv1.TaskStatistics{Vertex: "v", RecordsIn: 5, LagRecords: 0, Activity: &jobv1.TaskActivity{
			ForMs: uint64(1000 * i), StageMs: uint64(1000 * i), Checkpoint: 3, Stage: jobv1.CheckpointStage_CHECKPOINT_STAGE_DONE,
			Splits: []*jobv1.SplitProgress{{Name: "p0", QuietMs: proto.Uint64(uint64(1000 * i))}},
		}}
		change(i, s)
		sent := proto.CloneOf(s)
		switch r := f.look([]*jobv1.TaskStatistics{s}); {
		case r == nil:
			told += "."
		case r.GetQuietMs() > 0:
			require.EqualValues(t, 10_000, r.GetQuietMs())
			told += "z"
		default:
			told += "!"
		}
		require.True(t, proto.Equal(sent, s), "what is reported is left as it is")
	}
	return told
}

func TestFiguresThatDoNotChangeAreReportedSeldom(t *testing.T) {
	still := func(int, *jobv1.TaskStatistics) {}
	always := func(change func(s *jobv1.TaskStatistics)) func(int, *jobv1.TaskStatistics) {
		return func(_ int, s *jobv1.TaskStatistics) { change(s) }
	}
	wait := func(ms uint64) func(int, *jobv1.TaskStatistics) {
		return always(func(s *jobv1.TaskStatistics) { s.Activity.Waits = []*jobv1.TaskWait{{What: "Kafka", ForMs: ms}} })
	}
	for name, test := range map[string]struct {
		change func(int, *jobv1.TaskStatistics)
		told   string
	}{
		"nothing changes": {still, "!z.........z.."},
		"records come":    {func(i int, s *jobv1.TaskStatistics) { s.RecordsIn += uint64(i) }, "!!!!!!!!!!!!!!"},
		"one record":      {func(i int, s *jobv1.TaskStatistics) { s.RecordsIn += uint64(i / 5) }, "!z...!z...!z.."},
		"a new split":     {func(i int, s *jobv1.TaskStatistics) { s.Activity.Splits[0].Name += string(rune('a' + i/7)) }, "!z.....!z....."},
		"a split falls quiet": {func(i int, s *jobv1.TaskStatistics) {
			if i < 4 {
				s.Activity.Splits[0].QuietMs = nil
			}
		}, "!z..!z........"},
		"a checkpoint": {func(i int, s *jobv1.TaskStatistics) { s.Activity.Checkpoint += uint64(i / 7) }, "!z.....!z....."},
		"a checkpoint in progress": {always(func(s *jobv1.TaskStatistics) {
			s.Activity.Stage = jobv1.CheckpointStage_CHECKPOINT_STAGE_ALIGNING
		}), "!!!!!!!!!!!!!!"},
		"a short wait":           {wait(999), "!z.........z.."},
		"a long wait":            {wait(1000), "!!!!!!!!!!!!!!"},
		"a call that takes long": {always(func(s *jobv1.TaskStatistics) { s.Activity.Doing = "processing records" }), "!!!!!!!!!!!!!!"},
		"a full output":          {always(func(s *jobv1.TaskStatistics) { s.Activity.BlockedOn = "b[0]" }), "!!!!!!!!!!!!!!"},
		"an open transaction":    {always(func(s *jobv1.TaskStatistics) { s.OldestTransactionMs = 1 }), "!!!!!!!!!!!!!!"},
		"no activity":            {always(func(s *jobv1.TaskStatistics) { s.Activity = nil }), "!z.........z.."},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.told, looks(t, &figures{}, len(test.told), test.change))
		})
	}
	f := &figures{}
	require.Equal(t, "!z..", looks(t, f, 4, still))
	f.changed()
	require.Equal(t, "!z..", looks(t, f, 4, still), "a command asks for them")
}
