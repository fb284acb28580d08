package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatNoCheckpointCovers(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	c := newCoverage(at(0))
	holds := func(s, seconds int, why string) {
		t.Helper()
		require.Equal(t, time.Duration(seconds)*time.Second, c.uncovered(at(s)), why)
	}
	holds(5, 5, "it has not started yet")
	c.started(at(5))
	c.changed(0, at(6))
	holds(7, 7, "the first checkpoint is not there")
	c.changed(1, at(8)) // between the snapshot of 1 and its completion
	c.completed(1)
	holds(10, 2, "only what came after the snapshot")
	c.changed(1, at(11)) // another worker
	holds(12, 4, "the oldest counts")
	c.completed(2)
	holds(500, 0, "an idle job has nothing to wait for")

	c.changed(2, at(500))
	c.changed(3, at(510)) // 3 was triggered and failed
	holds(520, 20, "a failed checkpoint covers nothing")
	c.ended(at(530))
	holds(560, 60, "nor does a restart")
	c.started(at(560))
	holds(565, 65, "nor the start of the next attempt")
	c.changed(2, at(566))
	holds(600, 100, "what is read again is a change")
	c.completed(4)
	holds(600, 0, "")

	c.ended(at(700))
	holds(705, 5, "of an idle job counts from its end on")
	c.started(at(710))
	holds(719, 19, "something may come soon")
	holds(721, 0, "nothing came")
	c.changed(4, at(730))
	c.completed(5)
	holds(740, 0, "")
}
