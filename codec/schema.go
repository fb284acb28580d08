package codec

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Schema describes the type that c encodes, for [SchemaConflict]: one line for each place inside a value, with the kind and size of
// what is there. It is empty where the codec's ID and fingerprint say all.
func Schema(c any) string {
	if s, ok := c.(interface{ Schema() string }); ok {
		return s.Schema()
	}
	return ""
}

// SchemaConflict returns the first place at which two schemas differ and what either has there; empty strings when values of one can
// be read as the other. Fields that only one of them has are no difference: that is how fields are added and removed.
func SchemaConflict(was, is string) (place, wasKind, isKind string) {
	known := make(map[string]string)
	for line := range strings.Lines(was) {
		at, kind := cutSchemaLine(line)
		known[at] = kind
	}
	for line := range strings.Lines(is) {
		at, kind := cutSchemaLine(line)
		if old, ok := known[at]; ok && old != kind {
			return at, old, kind
		}
	}
	return "", "", ""
}

// UnionSchemas returns a schema with the places of both, so that a removed field does not come back as something else while values that
// have it may still be there. Where both have a place, newer counts.
func UnionSchemas(newer, older string) string {
	known := make(map[string]bool)
	for line := range strings.Lines(newer) {
		at, _ := cutSchemaLine(line)
		known[at] = true
	}
	for line := range strings.Lines(older) {
		if at, _ := cutSchemaLine(line); !known[at] {
			newer += line
		}
	}
	return newer
}

func cutSchemaLine(line string) (place, kind string) {
	i := strings.LastIndexByte(line, ' ')
	return line[:max(i, 0)], strings.TrimSuffix(line[i+1:], "\n")
}

// nodeKind says how MessagePack encodes a value.
type nodeKind uint8

const (
	opaque nodeKind = iota // a type that encodes itself, or an interface
	boolNode
	intNode
	uintNode
	floatNode
	stringNode
	bytesNode
	pointerNode
	listNode
	mapNode
	structNode
)

// node is a type as MessagePack sees it. Recursive types are rings of nodes.
type node struct {
	kind nodeKind
	// text names kind and size in a schema.
	text string
	bits int
	// key and elem are of maps, elem also of lists and pointers.
	key, elem *node
	// fields are a struct's by their names in the encoding; names holds them in order.
	fields map[string]*node
	names  []string
}

// newNode returns the node of a type that inspect has let pass.
func newNode(t reflect.Type, structs map[reflect.Type]*node) *node {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return &node{text: "time"}
	case encodesItself(t):
		return &node{text: "self:" + strings.ReplaceAll(t.String(), " ", "")}
	}
	plain := func(k nodeKind) *node {
		n := &node{kind: k, text: t.Kind().String()}
		if k == intNode || k == uintNode {
			n.bits = t.Bits()
			n.text = strings.TrimRight(n.text, "0123456789") + strconv.Itoa(n.bits)
		}
		return n
	}
	list := func(text string) *node {
		if t.Elem().Kind() == reflect.Uint8 && !encodesItself(t.Elem()) {
			return &node{kind: bytesNode, text: text + "byte"}
		}
		return &node{kind: listNode, text: text, elem: newNode(t.Elem(), structs)}
	}
	switch t.Kind() {
	case reflect.Bool:
		return plain(boolNode)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return plain(intNode)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return plain(uintNode)
	case reflect.Float32, reflect.Float64:
		return plain(floatNode)
	case reflect.String:
		return plain(stringNode)
	case reflect.Pointer:
		return &node{kind: pointerNode, text: "*", elem: newNode(t.Elem(), structs)}
	case reflect.Slice:
		return list("[]")
	case reflect.Array:
		return list(fmt.Sprintf("[%d]", t.Len()))
	case reflect.Map:
		return &node{kind: mapNode, text: "map", key: newNode(t.Key(), structs), elem: newNode(t.Elem(), structs)}
	case reflect.Struct:
		if n := structs[t]; n != nil {
			return n
		}
		n := &node{kind: structNode, text: "struct", fields: map[string]*node{}}
		structs[t] = n
		n.addFields(t, structs)
		return n
	}
	return &node{text: "any"}
}

// addFields adds the fields of a struct. Those of an embedded one count as its own unless names collide, as for the encoder.
func (n *node) addFields(t reflect.Type, structs map[reflect.Type]*node) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("msgpack"), ",")
		if name == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if name == "" {
			name = f.Name
		}
		of := newNode(f.Type, structs)
		inner := of
		for inner.kind == pointerNode {
			inner = inner.elem
		}
		if f.Anonymous && inner.kind == structNode && !strings.Contains(options, "noinline") && n.takes(inner, options) {
			for _, in := range inner.names {
				n.add(in, inner.fields[in])
			}
			continue
		}
		n.add(name, of)
	}
}

func (n *node) takes(embedded *node, options string) bool {
	if strings.Contains(options, "inline") {
		return true
	}
	for _, name := range embedded.names {
		if n.fields[name] != nil {
			return false
		}
	}
	return true
}

func (n *node) add(name string, of *node) {
	if n.fields[name] == nil {
		n.fields[name] = of
		n.names = append(n.names, name)
	}
}

// schema returns the lines of a type.
func (n *node) schema() string {
	var b strings.Builder
	n.describe(&b, "value", map[*node]string{})
	return b.String()
}

func (n *node) describe(b *strings.Builder, at string, within map[*node]string) {
	if outer, ok := within[n]; ok {
		fmt.Fprintf(b, "%s =%s\n", at, strings.ReplaceAll(outer, " ", ""))
		return
	}
	fmt.Fprintf(b, "%s %s\n", at, n.text)
	within[n] = at
	defer delete(within, n)
	if n.key != nil {
		n.key.describe(b, at+"[key]", within)
	}
	if n.elem != nil {
		suffix := "[]"
		if n.kind == pointerNode {
			suffix = "*"
		}
		n.elem.describe(b, at+suffix, within)
	}
	for _, name := range n.names {
		shown := name
		if quoted := strconv.Quote(name); quoted[1:len(quoted)-1] != name {
			shown = quoted // a line break would make two lines of it
		}
		n.fields[name].describe(b, at+"."+shown, within)
	}
}
