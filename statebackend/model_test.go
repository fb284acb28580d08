package statebackend_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/codec"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/statetest"
)

const modelGroups = 6

// tally is an accumulator that is changed in place and shares memory with its copies.
type tally struct{ Counts map[string]int }

type modelTimer struct {
	at  int64
	key string
}

// model is the right answer: what every state holds, whatever was checkpointed and restored.
type model struct {
	values map[string]string
	maps   map[string]map[int]string
	lists  map[string][]int
	panes  map[int64]map[string]map[string]int
	sums   map[int64]map[string]int
	timers map[modelTimer]bool
	aged   *agedModel
}

func newModel() *model {
	return &model{
		values: map[string]string{}, maps: map[string]map[int]string{}, lists: map[string][]int{},
		panes: map[int64]map[string]map[string]int{}, sums: map[int64]map[string]int{}, timers: map[modelTimer]bool{},
		aged: newAgedModel(),
	}
}

func (m *model) clone() *model {
	c := newModel()
	maps.Copy(c.values, m.values)
	for k, v := range m.maps {
		c.maps[k] = maps.Clone(v)
	}
	for k, v := range m.lists {
		c.lists[k] = slices.Clone(v)
	}
	for at, p := range m.panes {
		c.panes[at] = map[string]map[string]int{}
		for k, v := range p {
			c.panes[at][k] = maps.Clone(v)
		}
	}
	for at, p := range m.sums {
		c.sums[at] = maps.Clone(p)
	}
	maps.Copy(c.timers, m.timers)
	c.aged = m.aged.clone()
	return c
}

// subtask is one backend with its states and mailbox.
type subtask struct {
	b      *statebackend.Backend[string]
	groups keygroup.Range
	values *statebackend.Value[string, string]
	maps   *statebackend.Map[string, int, string]
	lists  *statebackend.List[string, int]
	panes  *statebackend.Panes[string, tally]
	sums   *statebackend.Panes[string, int]
	timers *statebackend.Timers[string]
	aged   agedStates

	mu      sync.Mutex
	mailbox []func() error
}

func (s *subtask) post(fn func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mailbox = append(s.mailbox, fn)
}

// deliver runs at most limit posted functions, and returns how many of them came late: after rows were evicted.
func (s *subtask) deliver(t require.TestingT, limit int) (late int) {
	for range limit {
		s.mu.Lock()
		var fn func() error
		if len(s.mailbox) > 0 {
			fn, s.mailbox = s.mailbox[0], s.mailbox[1:]
		}
		s.mu.Unlock()
		if fn == nil {
			return late
		}
		if statebackend.Evicting(s.b) {
			late++
		}
		require.NoError(t, fn())
	}
	return late
}

// waitForMail waits until a loader, if there is one, has posted something.
func (s *subtask) waitForMail(t require.TestingT) {
	if !statebackend.Loading(s.b) {
		return
	}
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.mailbox) > 0
	}, time.Minute, 100*time.Microsecond)
}

func mustCodec[T any](t require.TestingT) codec.Codec[T] {
	c, err := codec.For[T]()
	require.NoError(t, err)
	return c
}

func mustKey[K comparable](t require.TestingT) codec.Key[K] {
	k, err := codec.ForKey[K]()
	require.NoError(t, err)
	return k
}

// checkpoint is one in flight.
type checkpoint struct {
	id      uint64
	state   *model
	results []chan written // one per subtask
	handles []*snapshotv1.KeyedSnapshot
	failed  bool
	sweeps  int // under way in the handles
}

type written struct {
	handle *snapshotv1.KeyedSnapshot
	err    error
	sweeps bool
}

type machine struct {
	dir      string
	store    *statetest.Store
	subtasks []*subtask
	now      *model
	next     uint64
	attempt  int
	open     []*checkpoint // in flight, oldest first
	last     *checkpoint   // completed
	keys     *rapid.Generator[string]
	budget   int64 // bytes of memory; 0 for no bound
	clock    int64 // processing time
	ahead    int64 // of the record before the watermark
	seen     *sightings
}

// sightings count what random runs came by.
type sightings struct {
	evicting  int // backends whose rows may be in segments only
	sweeping  int // snapshots in the middle of a sweep
	continued int // backends that were restored from one
	unloaded  int // of these, such that could not load it
	late      int // messages of a loader that came after rows were evicted
}

func (m *machine) of(key string) *subtask {
	g := keygroup.OfString(key, modelGroups)
	return m.subtasks[keygroup.Subtask(g, len(m.subtasks), modelGroups)]
}

func (m *machine) start(t *rapid.T, parallelism int, lazy bool) {
	m.attempt++
	m.subtasks = nil
	m.now.aged.begin(t)
	for i := range parallelism {
		s := &subtask{groups: keygroup.RangeOf(i, parallelism, modelGroups)}
		cfg := statebackend.Config{
			Operator: "op", KeyGroups: s.groups, MaxParallelism: modelGroups,
			Dir: fmt.Sprintf("%s/%d-%d", m.dir, m.attempt, i), NamePrefix: fmt.Sprintf("job/%d/%d", m.attempt, i), Segments: m.store,
		}
		cfg.MemoryBudget = m.budget
		if !lazy {
			cfg.Post = s.post
		}
		if m.last != nil {
			cfg.Restored = m.last.handles
		}
		s.b = statebackend.New(cfg, mustKey[string](t))
		statebackend.ShrinkLimits(s.b)
		s.values = statebackend.NewValue(s.b, "values", mustCodec[string](t))
		s.maps = statebackend.NewMap(s.b, "maps", mustKey[int](t), mustCodec[string](t))
		s.lists = statebackend.NewList(s.b, "lists", mustCodec[int](t))
		s.panes = statebackend.NewPanes(s.b, "panes", mustCodec[tally](t))
		s.sums = statebackend.NewPanes(s.b, "sums", mustCodec[int](t))
		s.timers = statebackend.NewTimers(s.b, "timers")
		s.aged = m.now.aged.declare(t, s.b)
		require.NoError(t, s.b.Open(context.Background()))
		if m.last != nil && m.last.sweeps > 0 {
			m.seen.continued++
			if statebackend.Evicting(s.b) {
				m.seen.unloaded++
			}
		}
		m.subtasks = append(m.subtasks, s)
	}
	m.setTime(0)
}

func (m *machine) stop(t require.TestingT) {
	for _, c := range m.open {
		m.settle(c)
	}
	m.open = nil
	for _, s := range m.subtasks {
		require.NoError(t, s.b.Close())
	}
}

// settle waits for a checkpoint to be written.
func (m *machine) settle(c *checkpoint) {
	for _, r := range c.results {
		w := <-r
		c.failed = c.failed || w.err != nil
		if w.sweeps {
			c.sweeps++
			m.seen.sweeping++
		}
		c.handles = append(c.handles, w.handle)
	}
	c.results = nil
}

func (m *machine) freeze(t *rapid.T) {
	m.next++
	m.setTime(0)
	c := &checkpoint{id: m.next, state: m.now.clone()}
	full := rapid.IntRange(0, 9).Draw(t, "full") == 9
	for _, s := range m.subtasks {
		f := s.b.Freeze(c.id, full)
		result := make(chan written, 1)
		c.results = append(c.results, result)
		go func() {
			h, err := f.Write(context.Background())
			result <- written{h, err, statebackend.Unfinished(f)}
		}()
	}
	m.open = append(m.open, c)
}

// complete completes one of the checkpoints in flight, which ends the older ones.
func (m *machine) complete(t *rapid.T) {
	if len(m.open) == 0 {
		return
	}
	m.completeOne(rapid.IntRange(0, len(m.open)-1).Draw(t, "which"), rapid.Bool().Draw(t, "notice is late"))
}

func (m *machine) completeOne(i int, lateNotice bool) {
	for _, older := range m.open[:i+1] {
		m.settle(older)
	}
	c := m.open[i]
	m.open = m.open[i+1:]
	if c.failed {
		return
	}
	// Only what the completed snapshot names may be needed from now on, by it and by later ones.
	needed := map[string]bool{}
	for _, h := range c.handles {
		for _, s := range h.GetSegments() {
			needed[s.GetName()] = true
		}
	}
	for _, newer := range m.open {
		m.settle(newer)
		for _, h := range newer.handles {
			for _, s := range h.GetSegments() {
				needed[s.GetName()] = true
			}
		}
	}
	m.last = c
	if lateNotice {
		return
	}
	for _, s := range m.subtasks {
		s.b.CheckpointCompleted(c.id)
	}
	for _, name := range m.store.Names() {
		if !needed[name] {
			m.store.Delete(name)
		}
	}
}

func (m *machine) abort(t *rapid.T) {
	if len(m.open) == 0 {
		return
	}
	c := m.open[len(m.open)-1]
	m.settle(c)
	m.open = m.open[:len(m.open)-1]
}

func (m *machine) restore(t *rapid.T) {
	m.stop(t)
	m.now = newModel()
	if m.last != nil {
		m.now = m.last.state.clone()
		for _, s := range m.last.handles {
			require.NotNil(t, s)
		}
	}
	m.start(t, rapid.IntRange(1, 4).Draw(t, "parallelism"), rapid.IntRange(0, 3).Draw(t, "lazy") == 0)
}

// outgrow restores, and has the state outgrow its budget while the loader waits for its turn. Then the loader comes.
func (m *machine) outgrow(t *rapid.T) {
	before := m.budget
	m.budget = 20_000 // what there is fits, and what comes does not
	m.restore(t)
	m.budget = before
	for _, s := range m.subtasks {
		s.waitForMail(t)
	}
	for round := range 4 { // a snapshot measures the rows, the next one leaves its files open; what nobody asks for in between is evicted
		for _, k := range modelKeys {
			v := fmt.Sprint(m.next) + strings.Repeat("outgrown", 400)
			if round < 2 {
				require.NoError(t, m.of(k).values.Put(k, v))
				m.now.values[k] = v
				continue
			}
			got, _, err := m.of(k).values.Get(k)
			require.NoError(t, err)
			require.Equal(t, m.now.values[k], got)
		}
		if round < 2 {
			m.freeze(t)
			m.completeOne(len(m.open)-1, false)
		}
	}
	for _, s := range m.subtasks {
		m.seen.late += s.deliver(t, 1)
	}
	m.compare(t)
}

var modelKeys = []string{"", "\x00", "\x00\xff", "a", "a\x00", "ab", "b", "c", "d", "e", "long" + strings.Repeat("x", 3000)}

func TestBackendKeepsWhatAPlainMapKeeps(t *testing.T) {
	dir := t.TempDir()
	run := 0
	var seen sightings
	defer func() {
		if t.Failed() {
			return
		}
		t.Logf("%+v", seen)
		require.Positive(t, seen.evicting)
		require.Positive(t, seen.sweeping)
		require.Positive(t, seen.continued)
		require.Positive(t, seen.unloaded)
		require.Positive(t, seen.late)
	}()
	rapid.Check(t, func(t *rapid.T) {
		run++
		root := fmt.Sprintf("%s/%d", dir, run)
		require.NoError(t, os.MkdirAll(root, 0o755))
		defer func() { require.NoError(t, os.RemoveAll(root)) }()
		m := &machine{dir: root, store: statetest.NewStore(root), now: newModel(), seen: &seen}
		m.keys = rapid.SampledFrom(modelKeys)
		m.budget = rapid.SampledFrom([]int64{0, 1, 1000, 4000, 20_000}).Draw(t, "budget")
		m.start(t, 2, false)
		defer func() { m.stop(t) }()
		value := rapid.SampledFrom([]string{"", "v", "w", strings.Repeat("big", 100)})
		at := rapid.SampledFrom([]int64{math.MinInt64, -7, 0, 1, 2, 3, math.MaxInt64})
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {
				for _, s := range m.subtasks {
					if statebackend.Evicting(s.b) {
						seen.evicting++
					}
				}
			},
			"freeze":   m.freeze,
			"complete": m.complete,
			"rounds": func(t *rapid.T) { // much changes from checkpoint to checkpoint
				for range rapid.IntRange(1, 4).Draw(t, "rounds") {
					for range rapid.IntRange(0, 4).Draw(t, "changes") {
						k, v := m.keys.Draw(t, "key"), value.Draw(t, "value")
						require.NoError(t, m.of(k).values.Put(k, v))
						m.now.values[k] = v
					}
					m.freeze(t)
					m.complete(t)
				}
			},
			"abort":   m.abort,
			"restore": m.restore,
			"outgrow": m.outgrow,
			"deliver": func(t *rapid.T) {
				for _, s := range m.subtasks {
					seen.late += s.deliver(t, rapid.IntRange(1, 3).Draw(t, "messages"))
				}
			},
			"values": func(t *rapid.T) {
				k, v := m.keys.Draw(t, "key"), value.Draw(t, "value")
				s := m.of(k)
				if rapid.Bool().Draw(t, "put") {
					require.NoError(t, s.values.Put(k, v))
					m.now.values[k] = v
				} else {
					require.NoError(t, s.values.Delete(k))
					delete(m.now.values, k)
				}
			},
			"expect": func(t *rapid.T) {
				k := m.keys.Draw(t, "key")
				m.of(k).b.Expect([]string{k, m.keys.Draw(t, "another key"), k})
			},
			"maps": func(t *rapid.T) {
				k, mk, v := m.keys.Draw(t, "key"), rapid.IntRange(-2, 2).Draw(t, "map key"), value.Draw(t, "value")
				s := m.of(k)
				switch rapid.IntRange(0, 4).Draw(t, "what") {
				case 0:
					require.NoError(t, s.maps.Delete(k, mk))
					delete(m.now.maps[k], mk)
				case 1:
					require.NoError(t, s.maps.Clear(k))
					delete(m.now.maps, k)
				default:
					require.NoError(t, s.maps.Put(k, mk, v))
					if m.now.maps[k] == nil {
						m.now.maps[k] = map[int]string{}
					}
					m.now.maps[k][mk] = v
				}
			},
			"aged": m.age,
			"lists": func(t *rapid.T) {
				k := m.keys.Draw(t, "key")
				s := m.of(k)
				if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
					require.NoError(t, s.lists.Clear(k))
					delete(m.now.lists, k)
					return
				}
				vs := rapid.SliceOfN(rapid.Int(), 1, 3).Draw(t, "values")
				require.NoError(t, s.lists.Append(k, vs...))
				m.now.lists[k] = append(m.now.lists[k], vs...)
			},
			"panes": func(t *rapid.T) {
				k, p := m.keys.Draw(t, "key"), at.Draw(t, "pane")
				s := m.of(k)
				if rapid.IntRange(0, 5).Draw(t, "what") == 0 {
					require.NoError(t, s.panes.Drop(p))
					require.NoError(t, s.sums.Drop(p))
					m.dropPane(s, p)
					return
				}
				acc, existed, err := s.panes.Acquire(p, k)
				require.NoError(t, err)
				require.Equal(t, m.now.panes[p][k] != nil, existed)
				if !existed {
					require.Nil(t, acc.Counts)
					acc.Counts = map[string]int{}
				}
				acc.Counts[k]++
				acc.Counts["all"]++
				sum, existed, err := s.sums.Acquire(p, k)
				require.NoError(t, err)
				require.Equal(t, m.now.sums[p][k] > 0, existed)
				*sum++
				if m.now.panes[p] == nil {
					m.now.panes[p] = map[string]map[string]int{}
					m.now.sums[p] = map[string]int{}
				}
				if m.now.panes[p][k] == nil {
					m.now.panes[p][k] = map[string]int{}
				}
				m.now.panes[p][k][k]++
				m.now.panes[p][k]["all"]++
				m.now.sums[p][k]++
			},
			"timers": func(t *rapid.T) {
				k, when := m.keys.Draw(t, "key"), at.Draw(t, "at")
				s := m.of(k)
				if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
					require.NoError(t, s.timers.Delete(when, k))
					delete(m.now.timers, modelTimer{when, k})
				} else {
					require.NoError(t, s.timers.Add(when, k))
					m.now.timers[modelTimer{when, k}] = true
				}
			},
			"due": func(t *rapid.T) { m.due(t, at.Draw(t, "up to")) },
			"look": func(t *rapid.T) {
				k := m.keys.Draw(t, "key")
				v, ok, err := m.of(k).values.Get(k)
				require.NoError(t, err)
				want, wanted := m.now.values[k]
				require.Equal(t, wanted, ok)
				require.Equal(t, want, v)
			},
			"compare": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "now") == 0 { // reading warms the tables, so not always
					m.compare(t)
				}
			},
		})
		m.compare(t)
		m.restore(t)
		m.compare(t)
	})
}

func (m *machine) dropPane(s *subtask, at int64) {
	for k := range m.now.panes[at] {
		if m.of(k) == s {
			delete(m.now.panes[at], k)
			delete(m.now.sums[at], k)
		}
	}
}

// due fires timers; a timer of key "a" sets another one a little later, once.
func (m *machine) due(t *rapid.T, upTo int64) {
	for _, s := range m.subtasks {
		last := int64(math.MinInt64)
		require.NoError(t, s.timers.Due(upTo, func(at int64, k string) error {
			require.True(t, m.now.timers[modelTimer{at, k}], "timer %d of %q", at, k)
			delete(m.now.timers, modelTimer{at, k})
			require.GreaterOrEqual(t, at, last)
			last = at
			if k == "a" && at < 3 {
				m.now.timers[modelTimer{max(at, 0) + 1, k}] = true
				return s.timers.Add(max(at, 0)+1, k)
			}
			return nil
		}))
		for timer := range m.now.timers {
			require.False(t, m.of(timer.key) == s && timer.at <= upTo, "timer %v did not fire", timer)
		}
	}
}

func (m *machine) compare(t *rapid.T) {
	for _, k := range append(slices.Clone(modelKeys), "none") {
		s := m.of(k)
		v, ok, err := s.values.Get(k)
		require.NoError(t, err)
		want, wanted := m.now.values[k]
		require.Equal(t, wanted, ok)
		require.Equal(t, want, v)

		vs, err := s.lists.All(k)
		require.NoError(t, err)
		require.True(t, slices.Equal(m.now.lists[k], vs), "list of %q: %v, not %v", k, vs, m.now.lists[k])

		var keys []int
		require.NoError(t, s.maps.Range(k, func(mk int, v string) bool {
			keys = append(keys, mk)
			require.Equal(t, m.now.maps[k][mk], v)
			return true
		}))
		require.True(t, slices.Equal(slices.Sorted(maps.Keys(m.now.maps[k])), keys), "map of %q: %v, not %v", k, keys, m.now.maps[k])
		from, to := rapid.IntRange(-3, 3).Draw(t, "from"), rapid.IntRange(-3, 3).Draw(t, "to")
		require.Equal(t, within(m.now.maps[k], from, to), ranged(t, s.maps, k, from, to), "%d to %d", from, to)
		require.Equal(t, within(m.now.maps[k], from, math.MaxInt), ranged(t, s.maps, k, from, math.MaxInt), "from %d on", from)
		for mk := range 3 {
			v, ok, err := s.maps.Get(k, mk)
			require.NoError(t, err)
			want, wanted := m.now.maps[k][mk]
			require.Equal(t, wanted, ok)
			require.Equal(t, want, v)
		}
	}
	m.compareAged(t)
	for _, s := range m.subtasks {
		m.comparePanes(t, s)
		next, ok := s.timers.Next()
		var times []int64
		for timer := range m.now.timers {
			if m.of(timer.key) == s {
				times = append(times, timer.at)
			}
		}
		require.Equal(t, len(times) > 0, ok)
		if ok {
			require.Equal(t, slices.Min(times), next)
		}
	}
}

func (m *machine) comparePanes(t *rapid.T, s *subtask) {
	var ats []int64
	for at, p := range m.now.panes {
		for k := range p {
			if m.of(k) == s {
				ats = append(ats, at)
				break
			}
		}
	}
	slices.Sort(ats)
	require.True(t, slices.Equal(ats, s.panes.All()), "panes %v, not %v", s.panes.All(), ats)
	first, ok := s.panes.First()
	require.Equal(t, len(ats) > 0, ok)
	for i, at := range ats {
		require.True(t, i > 0 || first == at)
		seen := 0
		require.NoError(t, s.panes.Each(at, func(k string, a tally) error {
			seen++
			require.Equal(t, m.now.panes[at][k], a.Counts)
			sum, ok, err := s.sums.Get(at, k)
			require.True(t, ok)
			require.Equal(t, m.now.sums[at][k], sum)
			return err
		}))
		want := 0
		for k := range m.now.panes[at] {
			if m.of(k) == s {
				want++
			}
		}
		require.Equal(t, want, seen)
	}
	if _, ok, err := s.panes.Get(99, "a"); ok || err != nil {
		t.Fatal(errors.Join(err, errors.New("pane 99 exists")))
	}
}
