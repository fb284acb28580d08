package demo

import "time"

// gaps measures the longest silence of the output in each of a row of phases. It is pure.
type gaps struct {
	last   time.Time
	phases []time.Duration
}

// output notes that output arrived at now.
func (g *gaps) output(now time.Time) {
	g.silence(now)
	g.last = now
}

// next begins a phase at now; the silence that lasts at that moment belongs to the new phase with its whole length.
func (g *gaps) next(now time.Time) {
	if g.last.IsZero() {
		g.last = now
	}
	g.phases = append(g.phases, 0)
}

// end notes that no more output is expected after now.
func (g *gaps) end(now time.Time) { g.silence(now) }

func (g *gaps) silence(now time.Time) {
	if n := len(g.phases); n > 0 && !g.last.IsZero() {
		g.phases[n-1] = max(g.phases[n-1], now.Sub(g.last))
	}
}
