package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGapsBelongToTheKillThatMadeThem(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	var g gaps
	g.output(at(0))
	g.output(at(5000)) // before the first kill: counts for nobody
	g.next(at(5500))
	g.output(at(8000))
	g.output(at(8100))
	g.next(at(8200))
	g.output(at(9000))
	g.end(at(9050))
	require.Equal(t, []time.Duration{3 * time.Second, 900 * time.Millisecond}, g.phases)
}
