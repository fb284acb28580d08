package statebackend_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/statebackend"
)

// stamped is a value with the time of its last write; unstamped before the state had a time to live.
type stamped[V any] struct {
	v  V
	at int64
}

const unstamped = math.MinInt64

// agedModel is what the states with a time to live hold: values and sums in processing time, maps and lists in event time.
type agedModel struct {
	after     int64 // 0 for no time to live
	had       bool  // a time to live, once
	watermark int64
	// expired is up to where entries have expired, in each kind of time.
	expired [2]int64

	values map[string]stamped[int]
	sums   map[string]stamped[int]
	maps   map[string]map[int]stamped[int]
	lists  map[string][]stamped[int]
}

const (
	byClock  = 0
	byEvents = 1
)

func newAgedModel() *agedModel {
	return &agedModel{
		expired: [2]int64{math.MinInt64, math.MinInt64},
		values:  map[string]stamped[int]{}, sums: map[string]stamped[int]{},
		maps: map[string]map[int]stamped[int]{}, lists: map[string][]stamped[int]{},
	}
}

func (a *agedModel) clone() *agedModel {
	c := *a
	c.values, c.sums, c.maps, c.lists = maps.Clone(a.values), maps.Clone(a.sums), map[string]map[int]stamped[int]{}, map[string][]stamped[int]{}
	for k, m := range a.maps {
		c.maps[k] = maps.Clone(m)
	}
	for k, l := range a.lists {
		c.lists[k] = slices.Clone(l)
	}
	return &c
}

// agedStates are the states of one subtask.
type agedStates struct {
	values *statebackend.Value[string, int]
	sums   *statebackend.Reducing[string, int]
	maps   *statebackend.Map[string, int, int]
	lists  *statebackend.List[string, int]
}

// begin chooses the time to live of an attempt.
func (a *agedModel) begin(t *rapid.T) {
	a.after = rapid.SampledFrom([]int64{0, 5, 5, 20}).Draw(t, "time to live")
}

func (a *agedModel) declare(t *rapid.T, b *statebackend.Backend[string]) agedStates {
	ttl := func(eventTime, refreshed bool) []statebackend.TTL {
		if a.after == 0 {
			return nil
		}
		return []statebackend.TTL{{After: time.Duration(a.after) * time.Millisecond, EventTime: eventTime, RefreshedByReads: refreshed}}
	}
	add := func(a, b int) int { return a + b }
	return agedStates{
		values: statebackend.NewValue(b, "aged values", mustCodec[int](t), ttl(false, true)...),
		sums:   statebackend.NewReducing(b, "aged sums", mustCodec[int](t), add, ttl(false, false)...),
		maps:   statebackend.NewMap(b, "aged maps", mustKey[int](t), mustCodec[int](t), ttl(true, false)...),
		lists:  statebackend.NewList(b, "aged lists", mustCodec[int](t), ttl(true, false)...),
	}
}

// setTime sets the clocks of model and backends; the record is ahead of the watermark by so much.
func (m *machine) setTime(ahead int64) {
	a := m.now.aged
	m.ahead = ahead
	for _, s := range m.subtasks {
		s.b.SetTime(m.clock, a.watermark, a.watermark+ahead)
	}
	if a.after == 0 {
		return
	}
	if !a.had {
		a.had = true
		a.stampAll(m.clock)
	}
	a.expired[byClock] = max(a.expired[byClock], m.clock-a.after)
	a.expired[byEvents] = max(a.expired[byEvents], a.watermark-a.after)
	a.forget()
}

// stampAll gives what has no stamp the time of the first start with a time to live.
func (a *agedModel) stampAll(clock int64) {
	for k, v := range a.values {
		a.values[k] = stamped[int]{v.v, clock}
	}
	for k, v := range a.sums {
		a.sums[k] = stamped[int]{v.v, clock}
	}
	for _, m := range a.maps {
		for mk, v := range m {
			m[mk] = stamped[int]{v.v, a.watermark}
		}
	}
	for _, l := range a.lists {
		for i := range l {
			l[i].at = a.watermark
		}
	}
}

// forget removes what has expired for good.
func (a *agedModel) forget() {
	old := func(kind int) func(string, stamped[int]) bool {
		return func(_ string, v stamped[int]) bool { return v.at != unstamped && v.at <= a.expired[kind] }
	}
	maps.DeleteFunc(a.values, old(byClock))
	maps.DeleteFunc(a.sums, old(byClock))
	for k, m := range a.maps {
		maps.DeleteFunc(m, func(_ int, v stamped[int]) bool { return old(byEvents)(k, v) })
	}
	for k, l := range a.lists {
		a.lists[k] = slices.DeleteFunc(l, func(v stamped[int]) bool { return old(byEvents)(k, v) })
	}
}

// stampOf is the stamp of what is written now.
func (m *machine) stampOf(kind int) int64 {
	a := m.now.aged
	switch {
	case !a.had:
		return unstamped
	case kind == byClock:
		return m.clock
	default:
		return a.watermark + max(0, m.ahead)
	}
}

// sees reports whether the record being handled sees an entry in event time.
func (m *machine) sees(v stamped[int]) bool {
	a := m.now.aged
	return a.after == 0 || v.at == unstamped || v.at > a.watermark+max(0, m.ahead)-a.after
}

// age lets time pass and does something with the states that have a time to live.
func (m *machine) age(t *rapid.T) {
	a := m.now.aged
	m.clock += rapid.Int64Range(0, 3).Draw(t, "time")
	a.watermark += rapid.Int64Range(0, 3).Draw(t, "watermark")
	m.setTime(rapid.Int64Range(-3, 6).Draw(t, "ahead"))
	k, mk, v := m.keys.Draw(t, "key"), rapid.IntRange(0, 200).Draw(t, "map key"), rapid.IntRange(0, 9).Draw(t, "value")
	s := m.of(k).aged
	switch rapid.SampledFrom([]string{
		"value", "read", "delete value", "sum", "delete sum", "put", "put", "fill", "delete", "clear", "append", "append", "clear list",
	}).Draw(t, "what") {
	case "value":
		require.NoError(t, s.values.Put(k, v))
		a.values[k] = stamped[int]{v, m.stampOf(byClock)}
	case "read":
		m.readValue(t, k)
	case "delete value":
		require.NoError(t, s.values.Delete(k))
		delete(a.values, k)
	case "sum":
		require.NoError(t, s.sums.Add(k, v))
		a.sums[k] = stamped[int]{a.sums[k].v + v, m.stampOf(byClock)}
	case "delete sum":
		require.NoError(t, s.sums.Delete(k))
		delete(a.sums, k)
	case "put":
		m.putAged(t, k, mk, v)
	case "fill":
		for i := range 100 {
			m.putAged(t, k, i, v)
		}
	case "delete":
		require.NoError(t, s.maps.Delete(k, mk))
		delete(a.maps[k], mk)
	case "clear":
		require.NoError(t, s.maps.Clear(k))
		delete(a.maps, k)
	case "append":
		require.NoError(t, s.lists.Append(k, v))
		a.lists[k] = append(a.lists[k], stamped[int]{v, m.stampOf(byEvents)})
	case "clear list":
		require.NoError(t, s.lists.Clear(k))
		delete(a.lists, k)
	}
}

func (m *machine) putAged(t *rapid.T, k string, mk, v int) {
	a := m.now.aged
	require.NoError(t, m.of(k).aged.maps.Put(k, mk, v))
	if a.maps[k] == nil {
		a.maps[k] = map[int]stamped[int]{}
	}
	a.maps[k][mk] = stamped[int]{v, m.stampOf(byEvents)}
}

// readValue compares a value, which the read refreshes.
func (m *machine) readValue(t *rapid.T, k string) {
	a := m.now.aged
	got, ok, err := m.of(k).aged.values.Get(k)
	require.NoError(t, err)
	want, wanted := a.values[k]
	require.Equal(t, wanted, ok, "aged value of %q", k)
	require.Equal(t, want.v, got)
	if wanted && a.after > 0 {
		a.values[k] = stamped[int]{want.v, m.stampOf(byClock)}
	}
}

func (m *machine) compareAged(t *rapid.T) {
	a := m.now.aged
	m.setTime(rapid.Int64Range(-3, 6).Draw(t, "ahead"))
	for _, k := range []string{"", "\x00", "\x00\xff", "a", "a\x00", "ab", "b", "c", "d", "e", "none"} {
		s := m.of(k).aged
		m.readValue(t, k)
		sum, ok, err := s.sums.Get(k)
		require.NoError(t, err)
		want, wanted := a.sums[k]
		require.Equal(t, wanted, ok, "aged sum of %q", k)
		require.Equal(t, want.v, sum)

		var list []int
		for _, v := range a.lists[k] {
			if m.sees(v) {
				list = append(list, v.v)
			}
		}
		got, err := s.lists.All(k)
		require.NoError(t, err)
		require.True(t, slices.Equal(list, got), "aged list of %q: %v, not %v", k, got, list)

		seen := map[int]int{}
		for mk, v := range a.maps[k] {
			if m.sees(v) {
				seen[mk] = v.v
			}
		}
		from, to := rapid.IntRange(-1, 201).Draw(t, "from"), rapid.IntRange(-1, 201).Draw(t, "to")
		require.Equal(t, within(seen, from, to), ranged(t, s.maps, k, from, to), "aged map of %q from %d to %d", k, from, to)
		mk := rapid.IntRange(0, 200).Draw(t, "map key")
		v, ok, err := s.maps.Get(k, mk)
		require.NoError(t, err)
		wantV, wanted := seen[mk]
		require.Equal(t, wanted, ok, "aged map of %q at %d", k, mk)
		require.Equal(t, wantV, v)
		require.Equal(t, within(seen, math.MinInt, math.MaxInt), ranged(t, s.maps, k, math.MinInt, math.MaxInt), "aged map of %q", k)
	}
}

// within returns a map's entries between two keys, in order.
func within[V any](m map[int]V, from, to int) (entries []string) {
	for _, mk := range slices.Sorted(maps.Keys(m)) {
		if mk >= from && mk < to {
			entries = append(entries, fmt.Sprint(mk, "=", m[mk]))
		}
	}
	return entries
}

// ranged returns what a walk over a map comes to; from the smallest integer it is one without bounds, to the largest one without an end.
func ranged[V any](t *rapid.T, s *statebackend.Map[string, int, V], k string, from, to int) (entries []string) {
	take := func(mk int, v V) bool {
		entries = append(entries, fmt.Sprint(mk, "=", v))
		return true
	}
	switch {
	case from == math.MinInt:
		require.NoError(t, s.Range(k, take))
	case to == math.MaxInt:
		require.NoError(t, s.RangeFrom(k, from, take))
	default:
		require.NoError(t, s.RangeBetween(k, from, to, take))
	}
	return entries
}
