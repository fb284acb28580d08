package task_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
	"github.com/weir-stream/weir/taskmanager/worker/task"
)

// turns counts how often a task asks for the time, which it does in each turn.
type turns struct{ n atomic.Int64 }

func (c *turns) Now() time.Time {
	c.n.Add(1)
	return time.Now()
}

// A task without input does nothing, however often somebody asks what it is at; with a timer it looks at the clock each second.
func TestIdleTaskDoesNotWake(t *testing.T) {
	for name, test := range map[string]struct {
		timer time.Duration
		turns int64
	}{
		"nothing to wait for": {0, 0},
		"a timer":             {time.Hour, 60},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fixture{d: newDiary()}
				cfg := config(f.d)
				clock := &turns{}
				cfg.Clock = clock
				a := &alarm{step: step{name: "a", d: f.d}}
				if test.timer > 0 {
					a.at = time.Now().Add(test.timer).UnixMilli()
				}
				cfg.Chain = []task.Link{link("a", a, -1)}
				cfg.Inbox, cfg.Readers = exchange.NewInbox(1), []operator.Reader{reader{a}}
				f.run(t, cfg)
				synctest.Wait()
				before := clock.n.Load()
				for range 60 {
					f.task.Statistics()
					time.Sleep(time.Second)
					synctest.Wait()
				}
				require.Equal(t, test.turns, clock.n.Load()-before)
			})
		})
	}
}

// A source is asked for what it says of its splits when it has emitted since, and not else.
func TestSplitsAreAskedForAfterEmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{d: newDiary()}
		cfg := config(f.d)
		s := &reporter{fetcher: &fetcher{step: step{name: "a", d: f.d, out: &step{name: "b", d: f.d}}, feed: make(chan any)}}
		cfg.Chain = []task.Link{link("a", s, -1)}
		f.run(t, cfg)
		highest := func() *int64 {
			f.task.Statistics() // asks
			synctest.Wait()
			return f.task.Statistics().GetActivity().HighestWatermarkMs
		}
		require.Nil(t, highest())
		asked := s.asked
		for range 10 {
			highest()
		}
		require.Equal(t, asked, s.asked)
		s.feed <- 7
		synctest.Wait()
		require.EqualValues(t, 7, *highest())
		require.Equal(t, asked+1, s.asked)
	})
}

// reporter is a source that tells of its splits.
type reporter struct {
	*fetcher
	asked, last int
}

func (s *reporter) Splits() operator.SplitReport {
	s.asked++
	r := operator.SplitReport{Enabled: true, Highest: operator.MinWatermark}
	if s.last > 0 {
		r.Highest = int64(s.last)
	}
	return r
}

func (s *reporter) Emit(v any, n int) (bool, error) {
	s.last = v.(int)
	return s.fetcher.Emit(v, n)
}

// pusher is an operator that holds records back.
type pusher struct{ step }

func (p *pusher) Push() { p.d.note("push") }

// What holds records back is told when the task is about to wait, once for what came before.
func TestRecordsAreNotHeldBackWithoutFurtherInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{d: newDiary()}
		cfg := config(f.d)
		a := &pusher{step{name: "a", d: f.d}}
		cfg.Chain = []task.Link{link("a", a, -1)}
		cfg.Inbox, cfg.Readers = exchange.NewInbox(1), []operator.Reader{reader{a}}
		f.run(t, cfg)
		synctest.Wait()
		sender := exchange.NewLocal(cfg.Inbox, 0)
		require.NoError(t, sender.Send(batch{1, 2}))
		synctest.Wait()
		require.NoError(t, sender.Send(batch{3}))
		synctest.Wait()
		f.task.Post(func() error { return nil })
		synctest.Wait()
		require.Equal(t, []string{"activity 0", "a record 1", "a record 2", "push", "a record 3", "push"}, f.d.all())
	})
}
