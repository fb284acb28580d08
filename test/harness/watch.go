package harness

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/client"
)

// CheckpointWatch gathers a job's completed checkpoints as the cluster reports them.
type CheckpointWatch struct {
	mu   sync.Mutex
	seen map[uint64]Completed
}

// Completed is one completed checkpoint.
type Completed struct {
	ID, Attempt uint64
	// Triggered and At are when it began and when it was complete, by the clock of its leader, which is this machine's.
	Triggered, At time.Time
}

// WatchCheckpoints gathers from now until the test ends.
func (c *Cluster) WatchCheckpoints(id string) *CheckpointWatch {
	c.t.Helper()
	w := &CheckpointWatch{seen: make(map[uint64]Completed)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		cfg := c.ClientConfig()
		var cl *client.Client
		for ctx.Err() == nil {
			if cl == nil {
				cl = client.New(cfg)
			}
			if w.look(ctx, cl, id) != nil {
				// A leader may be frozen: begin with another one.
				_ = cl.Close()
				cl, cfg.Addresses = nil, append(cfg.Addresses[1:], cfg.Addresses[0])
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
		if cl != nil {
			_ = cl.Close()
		}
	})
	c.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return w
}

// look asks once; while there is no leader there is no answer, and the next look gets what was missed.
func (w *CheckpointWatch) look(ctx context.Context, cl *client.Client, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return cl.Ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		resp, err := jobv1.NewJobServiceClient(conn).ListCheckpoints(ctx, &jobv1.ListCheckpointsRequest{Job: id})
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, cp := range resp.GetCheckpoints() {
			if cp.GetState() == "completed" {
				begin := time.UnixMilli(cp.GetTriggeredAtMs())
				w.seen[cp.GetId()] = Completed{
					cp.GetId(), cp.GetAttempt(), begin, begin.Add(time.Duration(cp.GetDurationMs()) * time.Millisecond),
				}
			}
		}
		return err
	})
}

// All returns the checkpoints seen, in the order of their ids.
func (w *CheckpointWatch) All() []Completed {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Completed
	for _, id := range slices.Sorted(maps.Keys(w.seen)) {
		out = append(out, w.seen[id])
	}
	return out
}

// Last returns the one with the highest id, the zero value before the first.
func (w *CheckpointWatch) Last() Completed {
	if all := w.All(); len(all) > 0 {
		return all[len(all)-1]
	}
	return Completed{}
}

// LongestPause returns the longest time between two completions, and between which.
func (w *CheckpointWatch) LongestPause() (longest time.Duration, from, to Completed) {
	all := w.All()
	for i := 1; i < len(all); i++ {
		if d := all[i].At.Sub(all[i-1].At); d > longest {
			longest, from, to = d, all[i-1], all[i]
		}
	}
	return longest, from, to
}
