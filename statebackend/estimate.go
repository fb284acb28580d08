package statebackend

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/weir-stream/weir/statebackend/segment"
)

// samples is how many pages are looked at to estimate how much of a state has expired: the estimate is off by a few hundredths.
const samples = 64

// estimateLive estimates how many rows of the segments before have not expired, from pages here and there; -1 when there is nothing to go
// by. It is for a state that is not in memory, where nobody counts them. Rows that a newer one hides count like that one.
func (f *Frozen) estimateLive(ctx context.Context) (_ int, err error) {
	var rows uint64
	for _, s := range f.before.segments {
		rows += s.GetEntries()
	}
	if rows <= f.core.limits.wasteRows {
		return -1, nil
	}
	opened, err := f.core.files.acquire(ctx, f.before.segments)
	if err != nil {
		return 0, &StorageError{Op: "look at state segments", Err: err}
	}
	defer func() { err = errors.Join(err, opened.release()) }()
	random := rand.New(rand.NewPCG(f.checkpoint, rows))
	var seen, live uint64
	for range samples {
		at, i := random.Uint64N(rows), 0
		for ; at >= f.before.segments[i].GetEntries(); i++ {
			at -= f.before.segments[i].GetEntries()
		}
		source := opened.list[i]
		err := source.Segment.Sample(random.IntN, func(row []byte, tombstone bool, at int64) {
			if !source.Groups.Contains(segment.Group(row)) {
				return
			}
			seen++
			h := f.horizons[segment.State(row)]
			if !tombstone && (h == nil || !h.gone(stamp(at))) {
				live++
			}
		})
		if err := opened.distrust(err); err != nil {
			return 0, &StorageError{Op: "look at state segments", Err: err}
		}
	}
	if seen == 0 {
		return -1, nil
	}
	return int(float64(rows) * float64(live) / float64(seen)), nil
}
