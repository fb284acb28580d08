package inspect

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/weir-stream/weir/codec"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend"
)

// Entry is one row of state, or one piece of an operator's own state, as JSON writes it. What cannot be read without the job's types is
// there as hexadecimal bytes.
type Entry struct {
	Operator string `json:"operator"`
	Subtask  uint32 `json:"subtask"`
	State    string `json:"state"`
	Kind     string `json:"kind"`
	Key      any    `json:"key,omitempty"`
	KeyHex   string `json:"keyHex,omitempty"`
	// Window and At are in milliseconds since the epoch: a window's start, a timer's time.
	Window    *int64 `json:"window,omitempty"`
	At        *int64 `json:"at,omitempty"`
	MapKey    any    `json:"mapKey,omitempty"`
	MapKeyHex string `json:"mapKeyHex,omitempty"`
	Value     any    `json:"value,omitempty"`
	// ExpiresAt is when the time to live of the row ends, in milliseconds since the epoch, in the state's kind of time.
	ExpiresAt *int64 `json:"expiresAt,omitempty"`
	// Expired tells that it had ended when the snapshot was taken.
	Expired  bool   `json:"expired,omitempty"`
	ValueHex string `json:"valueHex,omitempty"`
	// Note says why something is in hexadecimal.
	Note string `json:"note,omitempty"`
}

// kindOperator is the kind of an operator's own state, which belongs to no key.
const kindOperator = "operator"

// Filter chooses entries. Empty fields choose all.
type Filter struct {
	Operator, State string
	// Key is the text of a string or number, JSON of another key, or its bytes as 0x and hexadecimal digits.
	Key    string
	HasKey bool
	// Expired chooses rows that had expired too.
	Expired bool
}

func (f Filter) takes(operator, state string) bool {
	return (f.Operator == "" || f.Operator == operator) && (f.State == "" || f.State == state)
}

// Each calls fn for the entries that the filter chooses until it returns an error. A filter that names an operator or a state that is not
// there gives an error that wraps ErrNoState.
func (s *Snapshot) Each(ctx context.Context, f Filter, fn func(*Entry) error) error {
	if err := s.check(f); err != nil {
		return err
	}
	return s.operators(ctx, func(scope statebackend.SegmentStore, task *snapshotv1.TaskSnapshot, op *snapshotv1.OperatorSnapshot) error {
		for _, list := range op.GetOperatorStates() {
			if !f.takes(op.GetUid(), list.GetName()) {
				continue
			}
			for _, e := range list.GetEntries() {
				if f.HasKey && f.Key != e.GetKey() {
					continue
				}
				if err := fn(&Entry{
					Operator: op.GetUid(), Subtask: task.GetSubtask(), State: list.GetName(), Kind: kindOperator, Key: e.GetKey(),
					ValueHex: hex.EncodeToString(e.GetValue()), Note: "the operator's own encoding",
				}); err != nil {
					return err
				}
			}
		}
		wanted := slices.ContainsFunc(op.GetKeyed().GetSchemas(), func(s *snapshotv1.StateSchema) bool { return f.takes(op.GetUid(), s.GetName()) })
		if op.GetKeyed() == nil || !wanted {
			return nil
		}
		return statebackend.Scan(ctx, scope, op.GetKeyed(), func(row statebackend.Row) error {
			if !f.takes(op.GetUid(), row.Schema.GetName()) || row.Expired && !f.Expired {
				return nil
			}
			e, err := entryOf(op.GetUid(), task.GetSubtask(), row)
			if err != nil || f.HasKey && !matches(f.Key, e.Key, row.Key) {
				return err
			}
			return fn(e)
		})
	})
}

// operators calls fn for each operator instance, with a store whose files it lets go of afterwards.
func (s *Snapshot) operators(ctx context.Context, fn func(statebackend.SegmentStore, *snapshotv1.TaskSnapshot, *snapshotv1.OperatorSnapshot) error) error {
	for _, task := range s.tasks {
		for _, op := range task.GetOperators() {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			scope := s.store.Scope()
			err := fn(scope, task, op)
			scope.Close()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func entryOf(operator string, subtask uint32, row statebackend.Row) (*Entry, error) {
	schema := row.Schema
	e := &Entry{Operator: operator, Subtask: subtask, State: schema.GetName(), Kind: schema.GetKind()}
	if at, ok := row.ExpiresAt(); ok {
		e.ExpiresAt = &at
	}
	e.Expired = row.Expired
	keyCodec, mapKeyCodec, _ := strings.Cut(schema.GetKeyCodec(), "/")
	var notes []string
	// read gives either a value or its bytes.
	read := func(what string, decode func(string, []byte) (any, error), id string, src []byte) (any, string) {
		v, err := decode(id, src)
		switch {
		case err == nil:
			return plain(v), ""
		case errors.Is(err, codec.ErrUnknown):
			notes = append(notes, what+" is of codec "+id+", which only the job can read")
		default:
			notes = append(notes, what+": "+err.Error())
		}
		return nil, hex.EncodeToString(src)
	}
	e.Key, e.KeyHex = read("key", codec.DecodeKey, keyCodec, row.Key)
	switch schema.GetKind() {
	case "map":
		e.MapKey, e.MapKeyHex = read("map key", codec.DecodeKey, mapKeyCodec, row.MapKey)
	case "window":
		e.Window = &row.Namespace
	case "timer":
		e.At = &row.Namespace
		e.Note = strings.Join(notes, "; ")
		return e, nil
	case "list":
		elements, err := row.Elements()
		if err != nil {
			return nil, err
		}
		values := []any{}
		for _, src := range elements {
			v, bytes := read("element", codec.DecodeValue, schema.GetValueCodec(), src)
			if bytes != "" {
				e.ValueHex, values = hex.EncodeToString(row.Value), nil
				break
			}
			values = append(values, v)
		}
		if values != nil {
			e.Value = values
		}
		e.Note = strings.Join(notes, "; ")
		return e, nil
	}
	e.Value, e.ValueHex = read("value", codec.DecodeValue, schema.GetValueCodec(), row.Value)
	e.Note = strings.Join(notes, "; ")
	return e, nil
}

// plain makes a value one that JSON can write.
func plain(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return "not a number: " + strings.TrimSpace(jsonText(math.Float64bits(v)))
		}
	case float32:
		return plain(float64(v))
	case map[string]any:
		for k, in := range v {
			v[k] = plain(in)
		}
	case []any:
		for i, in := range v {
			v[i] = plain(in)
		}
	}
	return v
}

func jsonText(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// matches reports whether a user's text means a key.
func matches(text string, key any, raw []byte) bool {
	if digits, ok := strings.CutPrefix(text, "0x"); ok && digits == hex.EncodeToString(raw) {
		return true
	}
	if s, ok := key.(string); ok {
		return s == text
	}
	return key != nil && jsonText(key) == text
}
