package task_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
	"github.com/weir-stream/weir/taskmanager/worker/task"
)

// tally is a sink that counts and tells when it has a whole batch.
type tally struct {
	operator.Base
	n    int
	full chan struct{}
}

func (s *tally) Input() any { return operator.Collector[int](s) }
func (s *tally) Collect(int, int64) error {
	if s.n++; s.n%perBatch == 0 {
		s.full <- struct{}{}
	}
	return nil
}

const perBatch = 512

func newTally(tb testing.TB) (*exchange.Local, *tally, operator.Batch) {
	d := newDiary()
	cfg := config(d)
	sink := &tally{full: make(chan struct{}, 1)}
	cfg.Chain = []task.Link{link("sink", sink, -1)}
	cfg.Inbox, cfg.Readers = exchange.NewInbox(1), []operator.Reader{reader{sink}}
	tk := task.New(cfg)
	require.NoError(tb, tk.Open(tb.Context(), false))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tk.Run(tb.Context())
	}()
	tb.Cleanup(func() { tk.Cancel(); <-done })
	return exchange.NewLocal(cfg.Inbox, 0), sink, make(batch, perBatch)
}

// TestRecordsAreNotAllocated holds the way of a batch through a channel and a task to a few allocations, none for a record.
func TestRecordsAreNotAllocated(t *testing.T) {
	s, sink, b := newTally(t)
	perRun := testing.AllocsPerRun(200, func() {
		if err := s.Send(b); err != nil {
			panic(err)
		}
		<-sink.full
	})
	require.Less(t, perRun, 2.0, "for a batch of %d records", perBatch)
}

func BenchmarkTask(b *testing.B) {
	s, sink, records := newTally(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Send(records); err != nil {
			b.Fatal(err)
		}
		<-sink.full
	}
	b.ReportMetric(float64(b.N)*perBatch/b.Elapsed().Seconds(), "records/s")
}
