package local_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/stream/internal/local"
)

// keptRows are rows that keep what they write.
type keptRows struct {
	rows
	again string // the transaction that replaces lost ones
}

var _ operator.Rewriter = (*keptRows)(nil)

func (k *keptRows) Snapshot(ctx context.Context, b operator.Barrier) (operator.Finish, error) {
	content := strings.Join(k.current, "\n")
	finish, err := k.rows.Snapshot(ctx, b)
	if last := len(k.pending) - 1; content != "" && err == nil {
		k.pending[last].Records = []*snapshotv1.Segment{{Inline: []byte(content)}}
	}
	return finish, err
}

func (k *keptRows) RecoverOrRewrite(_ context.Context, groups []operator.Restored) (*workerv1.Replacement, error) {
	r := &workerv1.Replacement{Uid: "rows"}
	var content []string
	for _, g := range groups {
		lost := false
		for _, tx := range g {
			if !lost && k.end(tx.Committable) == nil {
				continue
			}
			lost = true
			if err := os.Remove(k.path("prepared", string(tx.Committable.GetPayload()))); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			r.Replaced = append(r.Replaced, tx.StandsFor...)
			for _, s := range tx.Committable.GetRecords() {
				content = append(content, string(s.GetInline()))
			}
		}
	}
	if len(content) == 0 {
		return nil, nil
	}
	k.again = fmt.Sprintf("%s.%d.%d.again", k.rt.ClusterID, k.rt.Attempt, k.rt.Subtask)
	r.Committable = &snapshotv1.Committable{Payload: []byte(k.again)}
	return r, os.WriteFile(k.path("prepared", k.again), []byte(strings.Join(content, "\n")), 0o600)
}

// Commit fails the task where rows are lost: the restart writes them again.
func (k *keptRows) Commit(n uint64, done func(error)) {
	k.rows.Commit(n, func(err error) {
		if err != nil {
			err = errors.New(err.Error())
		}
		done(err)
	})
}

func (k *keptRows) CommitRewritten(context.Context) error {
	if k.again == "" {
		return nil
	}
	if err := k.job.rewritten(k.again); err != nil {
		return err
	}
	return k.end(&snapshotv1.Committable{Payload: []byte(k.again)})
}

// lossyJob is a job of which the first output to be committed is lost, and all that is prepared with it.
func lossyJob(t *testing.T) (*testJob, local.Config) {
	j, cfg := newJob(t)
	j.n, j.restarts, j.durable = 1000, 10, true
	var lost atomic.Bool
	j.commit = func() error {
		if lost.Swap(true) {
			return nil
		}
		open, err := filepath.Glob(filepath.Join(j.out, "prepared", "*"))
		require.NoError(t, err)
		for _, path := range open {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return errors.New("the transaction is lost, and its records are kept")
	}
	return j, cfg
}

// What is written again is in the record before it is committed, so that the attempt that follows commits the same.
func TestLostOutputIsWrittenAgainOnce(t *testing.T) {
	j, cfg := lossyJob(t)
	var times atomic.Int64
	j.rewritten = func(id string) error {
		record, err := os.ReadFile(filepath.Join(cfg.Dir, "CURRENT"))
		require.NoError(t, err)
		require.Contains(t, string(record), `"replaced"`, "%s is not recorded", id)
		if times.Add(1) <= parallelism {
			return errors.New("it dies before the commit")
		}
		return nil
	}
	require.NoError(t, local.Run(t.Context(), cfg))
	require.NotZero(t, times.Load())
	requireExact(t, j.out, 1000, 1)
	record, err := os.ReadFile(filepath.Join(cfg.Dir, "CURRENT"))
	require.NoError(t, err)
	require.NotContains(t, string(record), `"replaced"`)
}

func TestAnEndingJobWritesLostOutputAgain(t *testing.T) {
	j, cfg := lossyJob(t)
	j.restarts = 0
	var times atomic.Int64
	j.rewritten = func(string) error { times.Add(1); return nil }
	var failed *local.Error
	require.ErrorAs(t, local.Run(t.Context(), cfg), &failed)
	require.Empty(t, failed.Unsettled)
	require.NotZero(t, times.Load(), "the settling attempt has written it again")
	require.NotEmpty(t, committed(t, j.out))
	require.NoError(t, local.Run(t.Context(), cfg))
	requireExact(t, j.out, 1000, 1)
}
