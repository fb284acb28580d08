package checkpoint_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"pgregory.net/rapid"
)

// model is the world around a coordinator, as far as its rules are about it.
type model struct {
	t   *rapid.T
	c   *checkpoint.Coordinator
	cfg checkpoint.Config
	now time.Time

	first, limit uint64 // reserved
	reserveAsked bool

	lastID    uint64          // triggered
	inFlight  uint64          // triggered and not decided; 0 for none
	acks      map[string]bool // of the one in flight, by task
	written   bool            // its metadata was asked for
	proposed  *checkpoint.Propose
	aborted   map[uint64]bool
	completed []uint64
	committed map[uint64]checkpoint.Propose
	live      map[string]bool // files of completed checkpoints
	metadata  map[uint64]*snapshotv1.CheckpointMetadata
	taken     bool // over from a former leader, and no checkpoint completed since

	acked     map[string]uint64 // commits, by worker
	paused    bool              // sources stand behind a stop's barrier
	stopping  string            // request id
	exporting bool              // the stop asks for a savepoint
	handover  bool              // one is asked for and not answered
	pending   map[string]bool   // savepoint requests without answer
	pinned    map[uint64]bool
	since     uint64 // one more than the newest snapshot after which something changed
	ended     map[string]bool
	closing   bool // the job's last checkpoint is completed
	over      bool // the attempt has ended
	requests  int
}

func newModel(t *rapid.T) *model {
	cfg := testConfig()
	cfg.Periodic = rapid.IntRange(0, 4).Draw(t, "periodic") > 0
	cfg.Initial = rapid.Bool().Draw(t, "initial")
	cfg.Full = cfg.Initial
	cfg.ToleratedFailures = rapid.IntRange(0, 3).Draw(t, "tolerated")
	cfg.Retained = rapid.IntRange(1, 3).Draw(t, "retained")
	cfg.MinPause = time.Duration(rapid.IntRange(0, 2000).Draw(t, "pause")) * time.Millisecond
	cfg.Reserve = 4
	cfg.Limit = cfg.FirstID + uint64(rapid.IntRange(0, 5).Draw(t, "reserved"))
	m := &model{
		t: t, cfg: cfg, now: epoch, first: cfg.FirstID, limit: cfg.Limit, lastID: cfg.Restored, aborted: map[uint64]bool{},
		committed: map[uint64]checkpoint.Propose{}, live: map[string]bool{}, metadata: map[uint64]*snapshotv1.CheckpointMetadata{}, acked: map[string]uint64{},
		pending: map[string]bool{}, pinned: map[uint64]bool{}, ended: map[string]bool{},
	}
	c, effects := checkpoint.New(cfg, m.now)
	m.c = c
	m.check(effects)
	return m
}

func (m *model) send(ev checkpoint.Event) {
	m.check(m.c.Handle(m.now, ev))
	if at, ok := m.c.Deadline(); ok {
		require.True(m.t, at.After(m.now), "deadline %v has passed at %v after %T", at, m.now, ev)
	}
	require.LessOrEqual(m.t, len(m.c.Statistics(m.now)), 21)
}

func (m *model) last() uint64 {
	if n := len(m.completed); n > 0 {
		return m.completed[n-1]
	}
	return 0
}

func (m *model) changed() bool {
	return m.since > m.last() || m.cfg.Initial && len(m.completed) == 0
}

func (m *model) activity() {
	m.since = m.lastID + 1
	m.send(checkpoint.Activity{Since: m.lastID})
}

func (m *model) ackedEverywhere(id uint64) bool { return m.acked["w1"] >= id && m.acked["w2"] >= id }

// check compares effects with what the rules allow.
func (m *model) check(effects []checkpoint.Effect) {
	t := m.t
	for _, e := range effects {
		switch e := e.(type) {
		case checkpoint.Trigger:
			require.False(t, m.over || m.closing, "triggered after the end")
			require.Zero(t, m.inFlight, "two checkpoints in flight")
			require.Greater(t, e.Checkpoint, m.lastID, "ids do not grow")
			require.True(t, m.first <= e.Checkpoint && e.Checkpoint < m.limit, "id %d is not reserved", e.Checkpoint)
			require.Equal(t, m.cfg.Full && len(m.completed) == 0, e.Full)
			require.Equal(t, m.stopping != "", e.Stop)
			require.False(t, m.paused && !e.Stop, "triggered while the sources are paused")
			reason := m.stopping != "" || len(m.pending) > 0 || m.handover || (m.changed() || m.taken) && m.cfg.Periodic || len(m.ended) == 2
			require.True(t, reason, "triggered although idle")
			m.lastID, m.inFlight = e.Checkpoint, e.Checkpoint
			m.acks, m.written, m.proposed = map[string]bool{}, false, nil
			m.paused = m.paused || e.Stop
		case checkpoint.Abort:
			require.Equal(t, m.inFlight, e.Checkpoint)
			require.Nil(t, m.proposed, "aborted although the log had not decided")
			m.aborted[e.Checkpoint] = true
			m.inFlight = 0
		case checkpoint.Resume:
			require.True(t, m.paused)
			m.paused = false
		case checkpoint.WriteMetadata:
			require.Equal(t, m.inFlight, e.Checkpoint)
			require.Len(t, m.acks, len(m.cfg.Tasks), "not all tasks have acknowledged")
			require.Len(t, e.Metadata.GetTasks(), len(m.cfg.Tasks))
			require.False(t, m.written)
			m.written, m.metadata[e.Checkpoint] = true, e.Metadata
		case checkpoint.Propose:
			require.False(t, m.over, "proposed after the end")
			require.Equal(t, m.inFlight, e.Completed.GetId())
			require.True(t, m.written, "proposed without metadata")
			require.Nil(t, m.proposed, "proposed twice")
			m.proposed = &e
		case checkpoint.Notify:
			require.Contains(t, m.committed, e.Checkpoint, "notified before it was in the log")
			require.Equal(t, m.last(), e.Checkpoint)
			require.NotEmpty(t, e.Workers)
			for _, w := range e.Workers {
				require.Less(t, m.acked[w], e.Checkpoint)
			}
		case checkpoint.Settle:
			require.Contains(t, m.committed, e.Checkpoint)
			require.True(t, m.ackedEverywhere(e.Checkpoint), "settled before it was acknowledged")
		case checkpoint.ReserveIDs:
			require.False(t, m.reserveAsked, "asked for ids twice")
			require.Greater(t, e.Limit, m.limit)
			m.reserveAsked = true
		case checkpoint.Export:
			require.True(t, m.pinned[e.Checkpoint], "exported without a pin")
			require.True(t, m.ackedEverywhere(e.Checkpoint), "exported before its commit")
			delete(m.pinned, e.Checkpoint)
			for _, id := range e.RequestIDs {
				m.answer(id)
			}
			require.Contains(t, []string{"", m.stopping}, e.StopID)
			require.True(t, e.StopID != "" || len(e.RequestIDs) > 0)
		case checkpoint.Unpin:
			require.True(t, m.pinned[e.Checkpoint])
			delete(m.pinned, e.Checkpoint)
		case checkpoint.SavepointFailed:
			m.answer(e.RequestID)
		case checkpoint.StopFailed:
			if e.RequestID == m.stopping {
				m.stopping = ""
			}
		case checkpoint.Handover:
			require.Contains(t, m.committed, e.Checkpoint)
			require.True(t, m.ackedEverywhere(e.Checkpoint), "handed over before its commit")
			require.False(t, m.closing || m.over)
			require.True(t, m.handover, "not asked for, or answered twice")
			m.handover = false
		case checkpoint.HandoverFailed:
			require.True(t, m.handover, "not asked for, or answered twice")
			m.handover = false
		case checkpoint.Finish:
			require.True(t, m.closing)
			require.Equal(t, m.last(), e.Checkpoint)
			require.True(t, m.ackedEverywhere(e.Checkpoint))
		case checkpoint.FailAttempt:
			require.False(t, m.over)
			m.over = true
			m.inFlight = 0
		case checkpoint.Discard:
			for _, name := range e.Files {
				require.False(t, m.live[name], "a file of a completed checkpoint is discarded: %s", name)
			}
		default:
			t.Fatalf("unknown effect %T", e)
		}
	}
}

func (m *model) answer(requestID string) {
	require.True(m.t, m.pending[requestID], "request %s is answered twice", requestID)
	delete(m.pending, requestID)
}

// id draws a checkpoint that may be the one in flight.
func (m *model) id() uint64 {
	if rapid.IntRange(0, 5).Draw(m.t, "other checkpoint") > 0 {
		return m.lastID
	}
	return m.lastID - uint64(rapid.IntRange(1, 3).Draw(m.t, "back"))
}

func (m *model) request() string {
	m.requests++
	return fmt.Sprint("r", m.requests)
}

func (m *model) ack(task checkpoint.Task, id uint64) {
	h := handle(task.ID, &snapshotv1.FileReference{Name: fmt.Sprintf("%s-%d", task.ID, id), Size: 1, Checkpoint: id})
	if n := m.last(); n > 0 && rapid.Bool().Draw(m.t, "delta") {
		h.Files = append(h.Files, &snapshotv1.FileReference{Name: fmt.Sprintf("%s-%d", task.ID, n), Size: 1, Checkpoint: n})
	}
	h.Committables = rapid.Uint32Range(0, 1).Draw(m.t, "committables")
	h.Ended = len(m.ended) == 2
	if id == m.inFlight && !m.written {
		m.acks[task.ID.String()] = true
	}
	m.send(checkpoint.Ack{Checkpoint: id, Handle: h})
}

func (m *model) decide(outcome checkpoint.Outcome) {
	if m.proposed == nil {
		m.send(checkpoint.Decided{Checkpoint: m.lastID, Outcome: checkpoint.Rejected})
		return
	}
	p := *m.proposed
	id := p.Completed.GetId()
	switch outcome {
	case checkpoint.Committed:
		m.taken = false
		m.completed = append(m.completed, id)
		m.committed[id] = p
		m.closing = m.closing || p.Target != goesOn
		m.proposed, m.inFlight = nil, 0
		if p.Completed.GetPinned() {
			m.pinned[id] = true
		}
		for _, task := range m.cfg.Tasks {
			m.live[fmt.Sprintf("%s-%d", task.ID, id)] = true
		}
		m.live[p.Completed.GetMetadata().GetName()] = true
	case checkpoint.Rejected:
		m.proposed = nil
	}
	m.send(checkpoint.Decided{Checkpoint: id, Outcome: outcome, Reason: "because"})
}

func (m *model) stop() {
	id := m.request()
	savepoint := rapid.Bool().Draw(m.t, "savepoint")
	if m.stopping == "" && !m.over && !m.closing {
		m.stopping, m.exporting = id, savepoint
	}
	m.send(checkpoint.RequestStop{RequestID: id, Savepoint: savepoint})
}

// reserve answers a request for checkpoint ids, which leaves out gap of them.
func (m *model) reserve(gap int) {
	if !m.reserveAsked {
		return
	}
	m.reserveAsked = false
	m.first = m.limit + uint64(gap)
	m.limit = m.first + 4
	m.send(checkpoint.IDsReserved{First: m.first, Limit: m.limit})
}

// complete lets everything happen that the checkpoint in flight waits for.
func (m *model) complete() {
	if m.inFlight != 0 && m.proposed == nil {
		for _, task := range m.cfg.Tasks {
			m.ack(task, m.inFlight)
		}
	}
	if m.inFlight != 0 && m.written && m.proposed == nil {
		m.send(checkpoint.MetadataWritten{Checkpoint: m.inFlight, Metadata: metadata(m.inFlight)})
	}
	if m.proposed != nil {
		m.decide(checkpoint.Committed)
	}
}

// newLeader lets another coordinator go on with the attempt, of which it knows what the log and the workers tell.
func (m *model) newLeader() {
	t := m.t
	if m.proposed != nil && rapid.Bool().Draw(t, "in the log") {
		m.decide(checkpoint.Committed)
		if m.closing {
			return
		}
	}
	for id := m.inFlight; id > 0; id = 0 {
		m.aborted[id] = true // with all others below the new ids
	}
	m.inFlight, m.proposed, m.written, m.handover = 0, nil, false, false
	m.pending, m.pinned = map[string]bool{}, map[uint64]bool{} // who asked for them asks again; the driver unpins
	settled := len(m.completed) > 0 && m.ackedEverywhere(m.last()) && rapid.Bool().Draw(t, "settled")
	m.acked, m.taken = map[string]uint64{}, true
	if m.reserveAsked && rapid.Bool().Draw(t, "reserved") {
		m.limit += 4
	}
	m.reserveAsked = false
	cfg := m.cfg
	cfg.Adopted, cfg.FirstID, cfg.Limit = true, m.limit, m.limit
	cfg.Full, cfg.Initial = cfg.Full && len(m.completed) == 0, cfg.Initial && len(m.completed) == 0
	cfg.Completed, cfg.Uncommitted = m.last(), !settled
	for _, id := range m.completed[max(0, len(m.completed)-cfg.Retained):] {
		cfg.History = append(cfg.History, m.metadata[id])
	}
	cfg.Stopping = m.stopping != ""
	c, effects := checkpoint.New(cfg, m.now)
	m.c = c
	if m.paused = m.stopping != ""; m.paused { // else the driver resumes them
		effects = append(effects, c.Handle(m.now, checkpoint.RequestStop{RequestID: m.stopping, Savepoint: m.exporting})...)
	}
	for w := range m.ended {
		effects = append(effects, c.Handle(m.now, checkpoint.InputEnded{Worker: w})...)
	}
	m.check(effects)
}

func (m *model) step() {
	t := m.t
	task := rapid.SampledFrom(m.cfg.Tasks).Draw(t, "task")
	steps := map[string]func(){
		"ack": func() { m.ack(task, m.id()) },
		"ack all": func() {
			for _, task := range m.cfg.Tasks {
				m.ack(task, m.lastID)
			}
		},
		"complete":         func() { m.complete() },
		"decline":          func() { m.send(checkpoint.Decline{Checkpoint: m.id(), Task: task.ID, Reason: "disk full"}) },
		"interrupt":        func() { m.send(checkpoint.Interrupted{Reason: "session broke"}) },
		"metadata written": func() { id := m.id(); m.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)}) },
		"metadata":         func() { m.send(checkpoint.MetadataWritten{Checkpoint: m.lastID, Metadata: metadata(m.lastID)}) },
		"metadata failed":  func() { m.send(checkpoint.MetadataFailed{Checkpoint: m.id(), Reason: "disk full"}) },
		"committed":        func() { m.decide(checkpoint.Committed) },
		"decided": func() {
			m.decide(rapid.SampledFrom([]checkpoint.Outcome{checkpoint.Committed, checkpoint.Rejected, checkpoint.Unknown}).Draw(t, "outcome"))
		},
		"commit acked": func() {
			if id := m.last(); id > 0 && !m.over {
				m.acked[task.Worker] = id
				m.send(checkpoint.CommitAcked{Worker: task.Worker, Checkpoint: id})
			}
		},
		"activity": func() {
			m.activity()
		},
		"old activity": func() {
			if n := len(m.completed); n > 1 {
				m.send(checkpoint.Activity{Since: m.completed[n-2]})
			}
		},
		"input ended": func() {
			if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
				m.ended[task.Worker] = true
				m.send(checkpoint.InputEnded{Worker: task.Worker})
			}
		},
		"savepoint": func() {
			id := m.request()
			m.pending[id] = true
			m.send(checkpoint.RequestSavepoint{RequestID: id})
		},
		"handover": func() {
			if !m.over {
				m.handover = true
			}
			m.send(checkpoint.RequestHandover{})
		},
		"stop": func() { m.stop() },
		"cancel stop": func() {
			tooLate := m.closing || m.over || m.proposed != nil && m.proposed.Target == stopped
			if !tooLate {
				m.stopping = ""
			}
			m.send(checkpoint.StopCancelled{})
		},
		"reserve": func() { m.reserve(rapid.IntRange(0, 3).Draw(t, "gap")) },
		"new leader": func() {
			if rapid.IntRange(0, 2).Draw(t, "really") == 0 && !m.over && !m.closing {
				m.newLeader()
			}
		},
		"time":   func() { m.pass(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond) },
		"long":   func() { m.pass(time.Duration(rapid.IntRange(0, 70).Draw(t, "s")) * time.Second) },
		"repeat": func() { m.send(checkpoint.Tick{}) },
	}
	names := make([]string, 0, len(steps))
	for name := range steps {
		names = append(names, name)
	}
	slices.Sort(names)
	steps[rapid.SampledFrom(names).Draw(t, "step")]()
}

func (m *model) pass(d time.Duration) {
	end := m.now.Add(d)
	for {
		at, ok := m.c.Deadline()
		if !ok || at.After(end) {
			m.now = end
			return
		}
		m.now = at
		m.send(checkpoint.Tick{})
	}
}

func TestRulesHoldInAnyOrderOfEvents(t *testing.T) {
	var finished, proposals int
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			m.step()
		}
		if rapid.Bool().Draw(t, "stopped in the end") {
			m.stop()
			for range 10 {
				m.reserve(0)
				m.pass(time.Second)
				m.complete()
			}
		}
		m.over = true
		m.send(checkpoint.AttemptEnded{Reason: "test over"})
		m.inFlight = 0
		require.Empty(t, m.pending, "savepoint requests without an answer")
		m.decide(checkpoint.Committed)
		require.Empty(t, m.pinned, "pins that nobody undoes")
		finished += len(m.completed)
		if m.closing {
			proposals++
		}
	})
	require.Positive(t, finished, "no checkpoint ever completed: the test tests nothing")
	require.Positive(t, proposals, "no job ever ended: the test tests nothing")
}

// TestProgress: whatever happened, once the trouble is over a changed job gets a checkpoint completed and committed.
func TestProgress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			m.step()
		}
		if m.over || m.closing || !m.cfg.Periodic {
			return
		}
		m.stopping = ""
		m.send(checkpoint.StopCancelled{})
		before := len(m.completed)
		m.activity()
		for i := 0; len(m.completed) < before+2 && !m.over && !m.closing; i++ {
			require.Less(t, i, 50, "no progress")
			m.reserve(0)
			m.pass(time.Second)
			m.complete()
			for _, task := range m.cfg.Tasks {
				if id := m.last(); id > 0 && !m.over {
					m.acked[task.Worker] = id
					m.send(checkpoint.CommitAcked{Worker: task.Worker, Checkpoint: id})
				}
			}
			m.activity()
		}
	})
}
