package local_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
)

// testJob counts from 0 to n in each of two subtasks, and writes "subtask:number" in transactions below a directory.
type testJob struct {
	name string
	// out has prepared/ and committed/, one file for a transaction.
	out string
	// n is the end of the input, 0 for none; pace is the time between two chunks.
	n    int
	pace time.Duration
	// record is called for each record, commit before each commit.
	record func(subtask, n int) error
	commit func() error
	// open is called when a subtask is opened.
	open func() error
	// interval between checkpoints.
	interval time.Duration
	restarts int
	// durable makes the rows keep what they write; rewritten is called before what was written again is committed.
	durable   bool
	rewritten func(id string) error
}

const parallelism = 2

func (j *testJob) plan(int) (*operator.Program, error) {
	for _, dir := range []string{"prepared", "committed"} {
		if err := os.MkdirAll(filepath.Join(j.out, dir), 0o700); err != nil {
			return nil, err
		}
	}
	interval := j.interval
	if interval == 0 {
		interval = 10 * time.Millisecond
	}
	return &operator.Program{
		Graph: &graph.Graph{
			Name: j.name, MaxParallelism: 128, Fingerprint: "test",
			Vertices: []graph.Vertex{{
				ID: "numbers", Parallelism: parallelism, Source: true,
				Operators: []graph.Operator{
					{UID: "numbers", Name: "numbers", Source: true, Stateful: true},
					{UID: "rows", Name: "rows", Stateful: true, TransactionSlots: 4, DurableOutput: j.durable},
				},
			}},
			Chained:     []graph.Edge{{ID: "e", From: "numbers", To: "rows", Partitioning: graph.Forward}},
			Checkpoints: graph.CheckpointConfig{Enabled: true, Interval: interval, Timeout: 10 * time.Second, Retained: 2, ToleratedFailures: 3},
			Restarts:    graph.RestartPolicy{MaxRestarts: j.restarts, Window: time.Minute, Multiplier: 1},
		},
		Factories: map[string]operator.Factory{
			"numbers": operator.FactoryFunc(func(outs []any) (operator.Instance, error) {
				out, err := operator.Fanout[int](outs)
				return &numbers{job: j, out: out}, err
			}),
			"rows": operator.FactoryFunc(func([]any) (operator.Instance, error) {
				if j.durable {
					return &keptRows{rows: rows{job: j}}, nil
				}
				return &rows{job: j}, nil
			}),
		},
	}, nil
}

type numbers struct {
	operator.Base
	job      *testJob
	out      operator.Collector[int]
	rt       *operator.Runtime
	position int
	next     int // used by Fetch only
}

func (s *numbers) Input() any { return nil }

func (s *numbers) Open(_ context.Context, rt *operator.Runtime) error {
	s.rt = rt
	if s.job.open != nil {
		if err := s.job.open(); err != nil {
			return err
		}
	}
	for _, r := range rt.Restored {
		s.position = int(binary.BigEndian.Uint64(r.GetOperatorStates()[0].GetEntries()[0].GetValue()))
	}
	s.next = s.position
	return nil
}

func (s *numbers) Fetch(ctx context.Context) (any, error) {
	if s.job.pace > 0 {
		select {
		case <-time.After(s.job.pace):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if s.job.n > 0 && s.next >= s.job.n {
		return nil, io.EOF
	}
	s.next += 10
	return 10, nil
}

func (s *numbers) Emit(any, int) (bool, error) {
	for range 10 {
		if s.job.n > 0 && s.position >= s.job.n {
			break
		}
		if s.job.record != nil {
			if err := s.job.record(s.rt.Subtask, s.position); err != nil {
				return false, err
			}
		}
		if err := s.out.Collect(s.position, operator.NoTimestamp); err != nil {
			return false, err
		}
		s.position++
	}
	return false, nil
}

func (s *numbers) CurrentWatermark(time.Time) (int64, bool) { return operator.MinWatermark, false }

func (s *numbers) Snapshot(context.Context, operator.Barrier) (operator.Finish, error) {
	position := binary.BigEndian.AppendUint64(nil, uint64(s.position))
	return func(context.Context) (*snapshotv1.OperatorSnapshot, error) {
		return &snapshotv1.OperatorSnapshot{OperatorStates: []*snapshotv1.OperatorState{{
			Name: "position", Entries: []*snapshotv1.OperatorStateEntry{{Key: strconv.Itoa(s.rt.Subtask), Value: position}},
		}}}, nil
	}, nil
}

type rows struct {
	operator.Base
	job     *testJob
	rt      *operator.Runtime
	current []string
	pending []*snapshotv1.Committable
}

func (s *rows) Input() any { return operator.Collector[int](s) }

func (s *rows) Open(_ context.Context, rt *operator.Runtime) error { s.rt = rt; return nil }

func (s *rows) Collect(v int, _ int64) error {
	s.current = append(s.current, fmt.Sprintf("%d:%d", s.rt.Subtask, v))
	return nil
}

func (s *rows) path(dir, id string) string { return filepath.Join(s.job.out, dir, id) }

func (s *rows) Snapshot(_ context.Context, b operator.Barrier) (operator.Finish, error) {
	if len(s.current) > 0 {
		id := fmt.Sprintf("%s.%d.%d.%d", s.rt.ClusterID, s.rt.Attempt, s.rt.Subtask, b.Checkpoint)
		if err := os.WriteFile(s.path("prepared", id), []byte(strings.Join(s.current, "\n")), 0o600); err != nil {
			return nil, err
		}
		s.current = nil
		s.pending = append(s.pending, &snapshotv1.Committable{Checkpoint: b.Checkpoint, Payload: []byte(id)})
	}
	pending := append([]*snapshotv1.Committable(nil), s.pending...)
	return func(context.Context) (*snapshotv1.OperatorSnapshot, error) {
		return &snapshotv1.OperatorSnapshot{Committables: pending}, nil
	}, nil
}

// end commits one transaction: a second commit changes nothing, and a transaction that is nowhere is lost.
func (s *rows) end(c *snapshotv1.Committable) error {
	id := string(c.GetPayload())
	err := os.Rename(s.path("prepared", id), s.path("committed", id))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(s.path("committed", id)); err != nil {
		return operator.DataLoss(fmt.Errorf("transaction %s is lost", id))
	}
	return nil
}

func (s *rows) RecoverCommit(_ context.Context, cs []*snapshotv1.Committable) error {
	for _, c := range cs {
		if err := s.end(c); err != nil {
			return err
		}
	}
	return nil
}

func (s *rows) RecoverAbort(_ context.Context, scope operator.Scope) error {
	for _, a := range scope.Attempts {
		for sub := scope.Subtask; sub < a.Parallelism; sub += scope.Parallelism {
			open, err := filepath.Glob(s.path("prepared", fmt.Sprintf("%s.%d.%d.*", s.rt.ClusterID, a.Attempt, sub)))
			if err != nil {
				return err
			}
			for _, path := range open {
				if err := os.Remove(path); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *rows) Commit(n uint64, done func(error)) {
	var err error
	if s.job.commit != nil && len(s.pending) > 0 && s.pending[0].GetCheckpoint() <= n {
		err = s.job.commit()
	}
	for len(s.pending) > 0 && s.pending[0].GetCheckpoint() <= n && err == nil {
		if err = s.end(s.pending[0]); err == nil {
			s.pending = s.pending[1:] // one that is not committed stays in the snapshots
		}
	}
	done(err)
}
