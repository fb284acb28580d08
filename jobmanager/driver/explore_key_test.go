package driver

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"
)

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
	shapes shapes
	buf    []byte
	now    time.Time
}

func (k *keyer) number(n int64) { k.buf = binary.AppendVarint(k.buf, n) }

func (k *keyer) text(s string) {
	k.number(int64(len(s)))
	k.buf = append(k.buf, s...)
}

func (k *keyer) message(m proto.Message) {
	before := len(k.buf)
	k.buf = binary.LittleEndian.AppendUint32(k.buf, 0)
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(k.buf, m)
	if err != nil {
		panic(err)
	}
	k.buf = b
	binary.LittleEndian.PutUint32(k.buf[before:], uint32(len(b)-before))
}

// keyOf returns the canonical form of a core.
func keyOf[T any](s shapes, v *T, now time.Time) string {
	k := keyer{shapes: s, now: now}
	s.of(reflect.TypeFor[T]()).write(&k, unsafe.Pointer(v))
	return string(k.buf)
}

func writeNumber[N int | int8 | int16 | int32 | int64 | uint | uint8 | uint16 | uint32 | uint64](k *keyer, p unsafe.Pointer) {
	k.number(int64(*(*N)(p)))
}

// writing fills in how the canonical form of a type is written.
func (s shapes) writing(sh *shape) {
	t := sh.typ
	switch {
	case t == timeType:
		sh.write = func(k *keyer, p unsafe.Pointer) {
			at := *(*time.Time)(p)
			if at.IsZero() {
				k.number(1 << 40)
				return
			}
			k.number(age(at, k.now))
		}
		return
	case sharedTypes[t]:
		sh.write = func(*keyer, unsafe.Pointer) {}
		return
	}
	switch t.Kind() {
	case reflect.Bool:
		sh.write = func(k *keyer, p unsafe.Pointer) { k.buf = append(k.buf, *(*byte)(p)) }
	case reflect.Int:
		sh.write = writeNumber[int]
	case reflect.Int8:
		sh.write = writeNumber[int8]
	case reflect.Int16:
		sh.write = writeNumber[int16]
	case reflect.Int32:
		sh.write = writeNumber[int32]
	case reflect.Int64:
		sh.write = writeNumber[int64]
	case reflect.Uint:
		sh.write = writeNumber[uint]
	case reflect.Uint8:
		sh.write = writeNumber[uint8]
	case reflect.Uint16:
		sh.write = writeNumber[uint16]
	case reflect.Uint32:
		sh.write = writeNumber[uint32]
	case reflect.Uint64:
		sh.write = writeNumber[uint64]
	case reflect.String:
		sh.write = func(k *keyer, p unsafe.Pointer) { k.text(*(*string)(p)) }
	case reflect.Struct:
		s.writingStruct(sh)
	case reflect.Array:
		e, n := s.of(t.Elem()), t.Len()
		sh.write = func(k *keyer, p unsafe.Pointer) { k.elements(e, p, n) }
	case reflect.Slice:
		e := s.of(t.Elem())
		sh.write = func(k *keyer, p unsafe.Pointer) {
			v := reflect.NewAt(t, p).Elem()
			k.number(int64(v.Len()))
			k.elements(e, v.UnsafePointer(), v.Len())
		}
	case reflect.Pointer:
		s.writingPointer(sh)
	case reflect.Interface:
		sh.write = func(k *keyer, p unsafe.Pointer) {
			v := reflect.NewAt(t, p).Elem()
			if v.IsNil() {
				k.number(0)
				return
			}
			k.text(v.Elem().Type().String())
			e := reflect.New(v.Elem().Type())
			e.Elem().Set(v.Elem())
			k.shapes.of(v.Elem().Type()).write(k, e.UnsafePointer())
		}
	case reflect.Map:
		s.writingMap(sh)
	case reflect.Func:
		sh.write = func(k *keyer, p unsafe.Pointer) { k.text(nameOf(reflect.NewAt(t, p).Elem())) }
	case reflect.Chan:
		sh.write = func(*keyer, unsafe.Pointer) {}
	default:
		sh.write = func(*keyer, unsafe.Pointer) { panic(fmt.Sprintf("explore: %s has no canonical form", t)) }
	}
}

func (k *keyer) elements(e *shape, p unsafe.Pointer, n int) {
	for i := range n {
		e.write(k, unsafe.Add(p, uintptr(i)*e.typ.Size()))
	}
}

func (s shapes) writingStruct(sh *shape) {
	type field struct {
		at uintptr
		s  *shape
	}
	var fields []field
	for i := range sh.typ.NumField() {
		if f := sh.typ.Field(i); !ignored[sh.typ.String()+"."+f.Name] {
			fields = append(fields, field{f.Offset, s.of(f.Type)})
		}
	}
	sh.write = func(k *keyer, p unsafe.Pointer) {
		for _, f := range fields {
			f.s.write(k, unsafe.Add(p, f.at))
		}
	}
}

func (s shapes) writingPointer(sh *shape) {
	t := sh.typ
	message := t.Implements(messageType)
	sh.write = func(k *keyer, p unsafe.Pointer) {
		to := *(*unsafe.Pointer)(p)
		if to == nil {
			k.number(0)
			return
		}
		k.number(1)
		if message {
			k.message(reflect.NewAt(t.Elem(), to).Interface().(proto.Message))
			return
		}
		k.shapes.of(t.Elem()).write(k, to)
	}
}

func (s shapes) writingMap(sh *shape) {
	t, key, elem := sh.typ, s.of(sh.typ.Key()), s.of(sh.typ.Elem())
	sh.write = func(k *keyer, p unsafe.Pointer) {
		v := reflect.NewAt(t, p).Elem()
		k.number(int64(v.Len()))
		if v.Len() == 0 {
			return
		}
		start := len(k.buf)
		var ends [][2]int // of key and value of each entry
		from, to := reflect.New(t.Key()), reflect.New(t.Elem())
		for it := v.MapRange(); it.Next(); {
			from.Elem().SetIterKey(it)
			to.Elem().SetIterValue(it)
			key.write(k, from.UnsafePointer())
			middle := len(k.buf)
			elem.write(k, to.UnsafePointer())
			ends = append(ends, [2]int{middle, len(k.buf)})
		}
		if len(ends) > 1 {
			k.sortEntries(start, ends)
		}
	}
}

// sortEntries brings the entries of a map that were written from start on into the order of their keys.
func (k *keyer) sortEntries(start int, ends [][2]int) {
	type entry struct{ key, all []byte }
	written := slices.Clone(k.buf[start:])
	entries := make([]entry, 0, len(ends))
	from := 0
	for _, e := range ends {
		entries = append(entries, entry{written[from : e[0]-start], written[from : e[1]-start]})
		from = e[1] - start
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(string(a.key), string(b.key)) })
	k.buf = k.buf[:start]
	for _, e := range entries {
		k.buf = append(k.buf, e.all...)
	}
}

// nameOf names a function; method values have one name whoever they belong to.
func nameOf(f reflect.Value) string {
	if f.IsNil() {
		return ""
	}
	return runtime.FuncForPC(f.Pointer()).Name()
}
