package checkpoint_test

import (
	"testing"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

// adopted is an attempt whose former leader completed checkpoint 12, which needs a file of 11.
func adopted(cfg *checkpoint.Config) {
	cfg.Adopted, cfg.Completed, cfg.Uncommitted = true, 12, true
	cfg.FirstID, cfg.Limit = 100, 100
	cfg.Reserve = 50
	cfg.History = []*snapshotv1.CheckpointMetadata{{
		Checkpoint: 12, Tasks: []*snapshotv1.TaskHandle{handle(cfg.Tasks[0].ID, file(11, "a"), file(12, "a"))},
	}}
}

func TestAnAdoptedAttemptGetsItsLastCompletionAndACheckpointAtOnce(t *testing.T) {
	h := newHarness(t, adopted)
	h.expect(
		checkpoint.Notify{Checkpoint: 12, Workers: []string{"w1", "w2"}},
		checkpoint.ReserveIDs{Limit: 150},
	)
	h.send(checkpoint.IDsReserved{First: 100, Limit: 150})
	h.expect(checkpoint.Trigger{Checkpoint: 100})
	h.send(checkpoint.CommitAcked{Worker: "w1", Checkpoint: 12})
	h.pass(time.Second)
	h.expect(checkpoint.Notify{Checkpoint: 12, Workers: []string{"w2"}})
	h.send(checkpoint.CommitAcked{Worker: "w2", Checkpoint: 12})
	h.pass(15 * time.Second)
	h.expect(checkpoint.Settle{Checkpoint: 12})
}

func TestAnAdoptedAttemptBuildsOnWhatIsRetained(t *testing.T) {
	h := newHarness(t, adopted)
	h.send(checkpoint.IDsReserved{First: 100, Limit: 150})
	h.ignore()
	h.ackAll(100, file(11, "a"), file(100, "a"))
	take[checkpoint.WriteMetadata](h)

	h = newHarness(t, adopted)
	h.send(checkpoint.IDsReserved{First: 100, Limit: 150})
	h.ignore()
	h.ackAll(100, file(11, "b"), file(100, "a")) // nothing retained needs this one, so that it may be gone
	none[checkpoint.WriteMetadata](h)
	take[checkpoint.Abort](h)
}

func TestAnAdoptedAttemptWithoutACheckpointOfItsOwn(t *testing.T) {
	h := newHarness(t, func(cfg *checkpoint.Config) {
		cfg.Adopted, cfg.Initial, cfg.Full, cfg.Restored = true, true, true, 0
		cfg.FirstID, cfg.Limit = 1, 100
	})
	h.expect(checkpoint.ReserveIDs{Limit: 1100}, checkpoint.Trigger{Checkpoint: 1, Full: true})
}
