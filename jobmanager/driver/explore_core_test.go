package driver

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"
)

// The exploration runs the pure cores as they are. A core is copied before it is given an event, and what it becomes is compared with
// all that it has become before, so that equal states are one. Both look at every field, exported or not: a field that is added to a
// core takes part by itself. Messages of protocol buffers are shared and never changed, as everywhere in the product.

var (
	timeType    = reflect.TypeFor[time.Time]()
	messageType = reflect.TypeFor[proto.Message]()
	contextType = reflect.TypeFor[context.Context]()
)

// shared are types of which a copy refers to the same thing: they decide nothing.
var sharedTypes = map[reflect.Type]bool{
	reflect.TypeFor[*slog.Logger](): true,
	reflect.TypeFor[*Manager]():     true,
	reflect.TypeFor[*cleaner]():     true,
}

// copier makes a deep copy, with times as move gives them.
type copier struct {
	move func(time.Time) time.Time
	seen map[unsafe.Pointer]reflect.Value
}

func deepCopy[T any](v *T, move func(time.Time) time.Time) *T {
	c := copier{move: move, seen: map[unsafe.Pointer]reflect.Value{}}
	n := new(T)
	c.seen[unsafe.Pointer(v)] = reflect.ValueOf(n)
	c.copy(reflect.ValueOf(n).Elem(), reflect.ValueOf(v).Elem())
	return n
}

// open makes a field accessible that its package keeps to itself.
func open(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

// flat reports whether a type has no pointers and no times.
func flat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16,
		reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64, reflect.String:
		return true
	}
	return false
}

func (c *copier) copy(dst, src reflect.Value) {
	t := src.Type()
	switch {
	case flat(t), sharedTypes[t], t == contextType, t.Kind() == reflect.Func, t.Kind() == reflect.Chan:
		dst.Set(src)
		return
	case t == timeType:
		if at := src.Interface().(time.Time); !at.IsZero() {
			dst.Set(reflect.ValueOf(c.move(at)))
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			c.copy(open(dst.Field(i)), open(src.Field(i)))
		}
	case reflect.Array:
		for i := range src.Len() {
			c.copy(dst.Index(i), src.Index(i))
		}
	case reflect.Pointer:
		switch {
		case src.IsNil():
		case t.Implements(messageType):
			dst.Set(src)
		default:
			if known, ok := c.seen[src.UnsafePointer()]; ok && known.Type() == t {
				dst.Set(known)
				return
			}
			n := reflect.New(t.Elem())
			c.seen[src.UnsafePointer()] = n
			c.copy(n.Elem(), src.Elem())
			dst.Set(n)
		}
	case reflect.Interface:
		if src.IsNil() {
			return
		}
		from, to := reflect.New(src.Elem().Type()).Elem(), reflect.New(src.Elem().Type()).Elem()
		from.Set(src.Elem())
		c.copy(to, from)
		dst.Set(to)
	case reflect.Slice:
		if src.IsNil() {
			return
		}
		n := reflect.MakeSlice(t, src.Len(), src.Len())
		if t.Elem().Kind() == reflect.Uint8 {
			reflect.Copy(n, src)
		} else {
			for i := range src.Len() {
				c.copy(n.Index(i), src.Index(i))
			}
		}
		dst.Set(n)
	case reflect.Map:
		if src.IsNil() {
			return
		}
		n := reflect.MakeMapWithSize(t, src.Len())
		for k, v := range src.Seq2() {
			from, to := reflect.New(t.Elem()).Elem(), reflect.New(t.Elem()).Elem()
			from.Set(v)
			c.copy(to, from)
			n.SetMapIndex(k, to)
		}
		dst.Set(n)
	default:
		panic(fmt.Sprintf("explore: %s cannot be copied", t))
	}
}

// ignored are fields that no decision depends on: texts and statistics for people, and the wiring.
var ignored = map[string]bool{
	"driver.job.m": true, "driver.job.id": true, "driver.job.status": true, "driver.job.logger": true, "driver.job.ctx": true,
	"driver.job.clean": true, "driver.job.gone": true, "driver.job.since": true, "driver.job.failedAt": true, "driver.job.finished": true,
	"driver.job.unsettled": true, "driver.job.warned": true, "driver.job.stops": true,
	"driver.failure.message": true, "driver.failure.outputTail": true,
	"driver.mailbox.mu": true, "driver.mailbox.ready": true,
	"checkpoint.Coordinator.history": true, "checkpoint.Config.History": true, "checkpoint.run.triggered": true,
	"restart.Former.At":             true,
	"registry.TaskManager.LastSeen": true,
}

// oldest is the age, in seconds, from which all ages are alike: more than any timer.
const oldest = 90

// age returns the canonical form of a time: whole seconds that have passed, or, negative, that are still to come.
func age(at, now time.Time) int64 {
	d := now.Sub(at)
	if d >= 0 {
		return int64(min(d/time.Second, oldest))
	}
	return -int64((-d + time.Second - 1) / time.Second)
}

// keyer writes a canonical form of a state: equal forms have the same future. Times count as ages and waits in whole seconds, since time
// passes in such steps only.
type keyer struct {
	buf []byte
	now time.Time
}

func (k *keyer) number(n int64) { k.buf = binary.AppendVarint(k.buf, n) }

func (k *keyer) text(s string) {
	k.number(int64(len(s)))
	k.buf = append(k.buf, s...)
}

func (k *keyer) time(at time.Time) {
	if at.IsZero() {
		k.number(1 << 40)
		return
	}
	k.number(age(at, k.now))
}

func (k *keyer) write(v reflect.Value) {
	t := v.Type()
	switch {
	case t == timeType:
		k.time(v.Interface().(time.Time))
		return
	case sharedTypes[t]:
		return
	}
	switch t.Kind() {
	case reflect.Bool:
		if v.Bool() {
			k.number(1)
		} else {
			k.number(0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		k.number(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		k.number(int64(v.Uint()))
	case reflect.String:
		k.text(v.String())
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); !ignored[t.String()+"."+f.Name] {
				k.write(open(v.Field(i)))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			k.write(v.Index(i))
		}
	case reflect.Slice:
		k.number(int64(v.Len()))
		for i := range v.Len() {
			k.write(v.Index(i))
		}
	case reflect.Pointer:
		k.pointer(v)
	case reflect.Interface:
		if v.IsNil() {
			k.number(0)
			return
		}
		k.text(v.Elem().Type().String())
		e := reflect.New(v.Elem().Type()).Elem()
		e.Set(v.Elem())
		k.write(e)
	case reflect.Map:
		k.entries(v)
	case reflect.Func:
		k.text(nameOf(v))
	case reflect.Chan:
	default:
		panic(fmt.Sprintf("explore: %s has no canonical form", t))
	}
}

func (k *keyer) pointer(v reflect.Value) {
	if v.IsNil() {
		k.number(0)
		return
	}
	k.number(1)
	if m, ok := v.Interface().(proto.Message); ok {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			panic(err)
		}
		k.text(string(b))
		return
	}
	k.write(v.Elem())
}

func (k *keyer) entries(v reflect.Value) {
	type entry struct{ key, value []byte }
	var entries []entry
	for key, value := range v.Seq2() {
		one := func(x reflect.Value) []byte {
			e := reflect.New(x.Type()).Elem()
			e.Set(x)
			part := keyer{now: k.now}
			part.write(e)
			return part.buf
		}
		entries = append(entries, entry{one(key), one(value)})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(string(a.key), string(b.key)) })
	k.number(int64(len(entries)))
	for _, e := range entries {
		k.buf = append(append(k.buf, e.key...), e.value...)
	}
}

// nameOf names a function; method values have one name whoever they belong to.
func nameOf(f reflect.Value) string {
	if f.IsNil() {
		return ""
	}
	return runtime.FuncForPC(f.Pointer()).Name()
}

func keyOf[T any](v *T, now time.Time) string {
	k := keyer{now: now}
	k.write(reflect.ValueOf(v).Elem())
	return string(k.buf)
}

// core numbers the states of one pure core, and remembers what each operation made of each: it is carried out once.
type core[S any, Op, Out comparable] struct {
	apply func(*S, Op) Out
	list  []*S
	index map[string]uint32
	memo  map[memoKey[Op]]memoOut[Out]
}

type memoKey[Op comparable] struct {
	state uint32
	op    Op
}

type memoOut[Out any] struct {
	state uint32
	out   Out
}

func newCore[S any, Op, Out comparable](first *S, apply func(*S, Op) Out) *core[S, Op, Out] {
	c := &core[S, Op, Out]{apply: apply, index: map[string]uint32{}, memo: map[memoKey[Op]]memoOut[Out]{}}
	c.intern(first)
	return c
}

func (c *core[S, Op, Out]) intern(s *S) uint32 {
	key := keyOf(s, time.Time{})
	id, ok := c.index[key]
	if !ok {
		id = uint32(len(c.list))
		c.list = append(c.list, s)
		c.index[key] = id
	}
	return id
}

// do carries an operation out on the state and replaces it by what follows.
func (c *core[S, Op, Out]) do(state *uint32, op Op) Out {
	key := memoKey[Op]{*state, op}
	r, ok := c.memo[key]
	if !ok {
		next := deepCopy(c.list[*state], nil)
		r.out = c.apply(next, op)
		r.state = c.intern(next)
		c.memo[key] = r
	}
	*state = r.state
	return r.out
}
