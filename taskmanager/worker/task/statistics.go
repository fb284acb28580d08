package task

import (
	"sync/atomic"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
)

// counters are figures of the task; the plain ones belong to its goroutine, which publishes them after each batch.
type counters struct {
	recordsIn uint64

	publishedIn, publishedOut atomic.Uint64
	watermark                 atomic.Int64
}

func (t *Task) publish() {
	t.stats.publishedIn.Store(t.stats.recordsIn)
	t.stats.publishedOut.Store(t.cfg.Sent.records)
	wm := t.links[0].delivered
	if t.links[0].watermarks != nil {
		wm = t.links[0].out.wm
	}
	t.stats.watermark.Store(wm)
}

// Statistics returns the task's figures.
func (t *Task) Statistics() *jobv1.TaskStatistics {
	s := &jobv1.TaskStatistics{
		Vertex: t.cfg.Vertex, Subtask: uint32(t.cfg.Subtask),
		RecordsIn: t.stats.publishedIn.Load(), RecordsOut: t.stats.publishedOut.Load(),
		LagRecords: -1,
	}
	if t.source != nil {
		s.LagRecords = t.links[0].Runtime.Stats.Lag.Load()
	}
	if wm := t.stats.watermark.Load(); wm != operator.MinWatermark && wm != operator.MaxWatermark {
		s.WatermarkMs = &wm
	}
	for i := range t.links {
		stats := t.links[i].Runtime.Stats
		s.RecordsIn += stats.In.Load()
		s.RecordsOut += stats.Out.Load()
		s.LateRecords += stats.Late.Load()
		s.SkippedRecords += stats.Skipped.Load()
		s.DeadLetterRecords += stats.DeadLetters.Load()
		s.LostRecords += stats.Lost.Load()
		s.StateBytes += uint64(max(stats.StateBytes.Load(), 0))
		if age, timeout := stats.Transactions.Oldest(); age > 0 && relative(age, timeout) >= relative(ms(s.OldestTransactionMs), ms(s.TransactionTimeoutMs)) {
			s.OldestTransactionMs, s.TransactionTimeoutMs = uint64(max(1, age.Milliseconds())), uint64(timeout.Milliseconds())
		}
	}
	s.Activity = t.describeActivity()
	return s
}

func ms(n uint64) time.Duration { return time.Duration(n) * time.Millisecond }

// relative is how much of its time a transaction has had.
func relative(age, timeout time.Duration) float64 {
	if timeout <= 0 {
		return 0
	}
	return float64(age) / float64(timeout)
}

// Counter counts the records that a task's writers send. It belongs to the task's goroutine.
type Counter struct{ records uint64 }

// Channel returns a channel to s that counts.
func (c *Counter) Channel(s exchange.Sender) operator.Channel { return counted{s, c} }

type counted struct {
	exchange.Sender
	counter *Counter
}

// Send implements operator.Channel.
func (c counted) Send(b operator.Batch) error {
	c.counter.records += uint64(b.Len())
	return c.Sender.Send(b)
}
