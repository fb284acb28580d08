package windowing

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// rig is a trigger over panes that hold the numbers of records.
type rig struct {
	trigger trigger
	panes   map[int64][]int
	next    int64
	fired   []string // window and numbers, in order
	late    []int
}

func (r *rig) add(n int, at int64) {
	pane := r.trigger.windows.Pane(at).Start
	v := r.trigger.judge(pane)
	if v.late {
		r.late = append(r.late, n)
		return
	}
	r.next = min(r.next, v.next)
	r.panes[pane] = append(r.panes[pane], n)
	if v.refire {
		_ = r.trigger.fired(pane, func(s Span) error {
			r.result(s)
			return nil
		})
	}
}

func (r *rig) result(s Span) {
	var numbers []int
	for pane, ns := range r.panes {
		if s.Contains(pane) {
			numbers = append(numbers, ns...)
		}
	}
	slices.Sort(numbers)
	r.fired = append(r.fired, fmt.Sprint(s.Start, numbers))
}

func (r *rig) advance(now int64) error {
	if now < r.next {
		r.trigger.now = now
		return nil
	}
	var err error
	r.next, err = r.trigger.advance(now, slices.Sorted(maps.Keys(r.panes)), func(s Span, panes []int64) error {
		for _, p := range panes {
			if !s.Contains(p) {
				return fmt.Errorf("pane %d is not in window %v", p, s)
			}
		}
		for p := range r.panes {
			if s.Contains(p) && !slices.Contains(panes, p) {
				return fmt.Errorf("pane %d of window %v is missing", p, s)
			}
		}
		r.result(s)
		return nil
	}, func(pane int64) error {
		delete(r.panes, pane)
		return nil
	})
	return err
}

// TestTriggerAgainstDefinition: a window fires once, when time reaches its last millisecond, with all records that were not late; it
// fires again for each record that comes within the lateness; a record is late when every window of it is over; nothing is kept
// longer than that.
func TestTriggerAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slide := rapid.Int64Range(1, 12).Draw(t, "slide")
		size := slide + rapid.Int64Range(0, 24).Draw(t, "more")
		lateness := rapid.SampledFrom([]int64{0, 0, 5, 30}).Draw(t, "lateness")
		windows := NewFixed(time.Duration(size)*time.Millisecond, time.Duration(slide)*time.Millisecond, 0)
		r := &rig{trigger: trigger{windows: windows, lateness: lateness, now: math.MinInt64}, panes: make(map[int64][]int), next: math.MaxInt64}

		type rec struct {
			n  int
			at int64
		}
		var kept []rec
		var want []string
		var wantLate []int
		content := func(start int64) string {
			var numbers []int
			for _, k := range kept {
				if k.at >= start && k.at < start+size {
					numbers = append(numbers, k.n)
				}
			}
			slices.Sort(numbers)
			return fmt.Sprint(start, numbers)
		}
		starts := func(at int64) []int64 { // of the windows that hold a time
			var ss []int64
			for s := at - size + 1; s <= at; s++ {
				if s%slide == 0 {
					ss = append(ss, s)
				}
			}
			return ss
		}
		now := int64(math.MinInt64)
		for n := range rapid.IntRange(1, 50).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "action") > 0 {
				at := rapid.Int64Range(-40, 120).Draw(t, "at")
				ss := starts(at)
				if ss[len(ss)-1]+size-1+lateness <= now {
					wantLate = append(wantLate, n)
				} else {
					kept = append(kept, rec{n, at})
					for _, s := range ss {
						if s+size-1 <= now && s+size-1+lateness > now {
							want = append(want, content(s))
						}
					}
				}
				r.add(n, at)
				continue
			}
			before := now
			now = max(now, rapid.Int64Range(-60, 160).Draw(t, "now"))
			if now == before {
				continue
			}
			for s := int64(-200); s <= 200; s++ {
				if s%slide != 0 || s+size-1 <= before || s+size-1 > now {
					continue
				}
				if slices.ContainsFunc(kept, func(k rec) bool { return k.at >= s && k.at < s+size }) {
					want = append(want, content(s))
				}
			}
			require.NoError(t, r.advance(now))
			for pane := range r.panes {
				require.Greater(t, windows.Last(pane).Last()+lateness, now, "pane %d is kept too long", pane)
			}
		}
		require.Equal(t, want, r.fired)
		require.Equal(t, wantLate, r.late)
		require.NoError(t, r.advance(math.MaxInt64))
		require.Empty(t, r.panes)
		require.EqualValues(t, math.MaxInt64, r.next)
	})
}
