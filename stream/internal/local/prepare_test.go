package local_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/stream/internal/local"
)

var errNoBroker = errors.New("no broker at 127.0.0.1:1")

// counted makes each preparation of a job fail but the first ones, and counts all.
func counted(j *testJob, good int, err error) *atomic.Int64 {
	var n atomic.Int64
	j.open = func() error {
		if n.Add(1) <= int64(good*parallelism) {
			return nil
		}
		return err
	}
	return &n
}

func TestAJobThatWasNeverPreparedFailsAtOnce(t *testing.T) {
	j, cfg := newJob(t)
	j.n, j.restarts = 10, 100
	opened := counted(j, 0, errNoBroker)
	for range 2 {
		opened.Store(0)
		err := local.Run(t.Context(), cfg)
		var failed *local.Error
		require.ErrorAs(t, err, &failed)
		require.Contains(t, failed.Message, errNoBroker.Error())
		require.Contains(t, failed.Reason, "never been prepared")
		require.Empty(t, failed.Unsettled, "nothing was started, so nothing is open")
		require.LessOrEqual(t, opened.Load(), int64(parallelism), "one attempt, and none to settle it")
	}
	j.open = nil
	require.NoError(t, local.Run(t.Context(), cfg))
	requireExact(t, j.out, 10, 1)

	counted(j, 0, errNoBroker)
	require.ErrorContains(t, local.Run(t.Context(), cfg), "never been prepared", "after the end of its input a job begins anew")
}

func TestStorageTroubleBeforeTheFirstPreparationIsRetried(t *testing.T) {
	j, cfg := newJob(t)
	j.n, j.restarts = 10, 100
	var n atomic.Int64
	j.open = func() error {
		if n.Add(1) == 1 {
			return &statebackend.StorageError{Err: errors.New("disk is away")}
		}
		return nil
	}
	require.NoError(t, local.Run(t.Context(), cfg))
	requireExact(t, j.out, 10, 1)
}

func TestAJobThatHasRunIsPreparedAgain(t *testing.T) {
	j, cfg := stoppedJob(t)
	var n atomic.Int64
	j.open = func() error {
		if n.Add(1) <= 3 {
			return errNoBroker
		}
		return nil
	}
	require.NoError(t, local.Run(t.Context(), cfg), "a broker that is away for a moment")
	requireExact(t, j.out, 1000, 1)
}

func TestStateThatDoesNotFitEndsTheRun(t *testing.T) {
	for _, misfit := range []error{statebackend.ErrSchema, statebackend.ErrDroppedState} {
		j, cfg := stoppedJob(t)
		before := committed(t, j.out)
		opened := counted(j, 0, fmt.Errorf("%w: the key codec was int64", misfit))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := local.Run(ctx, cfg)
		cancel()
		var failed *local.Error
		require.ErrorAs(t, err, &failed)
		require.Contains(t, failed.Message, misfit.Error())
		require.Contains(t, failed.Reason, "a restart cannot mend this")
		require.ErrorContains(t, err, cfg.Dir)
		require.LessOrEqual(t, opened.Load(), int64(parallelism))
		require.Equal(t, before, committed(t, j.out))

		j.open, j.pace = nil, time.Millisecond
		require.NoError(t, local.Run(t.Context(), cfg), "nothing is spoiled: the former program goes on")
		requireExact(t, j.out, 1000, 1)
		require.DirExists(t, filepath.Join(cfg.Dir, "storage"))
	}
}
