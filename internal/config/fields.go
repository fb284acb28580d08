package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Field is one key of a configuration struct.
type Field struct {
	// Path is the key in the file, nested keys joined by dots.
	Path string
	// Help describes the field, from its `help` tag.
	Help string
	// Default describes a default that depends on the machine, from its `default` tag; empty when the value itself tells it.
	Default string

	value reflect.Value
}

// Fields lists the keys of the struct that cfg points to, in order of declaration. Fields without a yaml tag are left out.
func Fields(cfg any) []Field {
	return appendFields(nil, "", reflect.ValueOf(cfg).Elem())
}

func appendFields(out []Field, prefix string, v reflect.Value) []Field {
	for i := range v.NumField() {
		tag := v.Type().Field(i)
		key, options, _ := strings.Cut(tag.Tag.Get("yaml"), ",")
		if key == "-" || !tag.IsExported() {
			continue
		}
		field := v.Field(i)
		nested := field.Kind() == reflect.Struct && !field.Addr().Type().Implements(textUnmarshaler)
		if nested && (key == "" && tag.Anonymous || strings.Contains(options, "inline")) {
			out = appendFields(out, prefix, field)
			continue
		}
		if key == "" {
			continue
		}
		if nested {
			out = appendFields(out, prefix+key+".", field)
			continue
		}
		out = append(out, Field{Path: prefix + key, Help: tag.Tag.Get("help"), Default: tag.Tag.Get("default"), value: field})
	}
	return out
}

// Env returns the field's environment variable.
func (f Field) Env(prefix string) string {
	return prefix + "_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(f.Path))
}

// Flag returns the field's flag name.
func (f Field) Flag() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(f.Path)
}

var (
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	duration        = reflect.TypeFor[time.Duration]()
)

// Type names the kind of value for people.
func (f Field) Type() string {
	t := f.value.Type()
	switch {
	case t == duration:
		return "duration"
	case t == reflect.TypeFor[Bytes]():
		return "bytes"
	case f.value.Addr().Type().Implements(textUnmarshaler):
		return "text"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "map"
	case reflect.String:
		return "string"
	default:
		return "number"
	}
}

// String returns the value as it would be set.
func (f Field) String() string {
	switch f.value.Kind() {
	case reflect.Slice:
		parts := make([]string, f.value.Len())
		for i := range parts {
			parts[i] = fmt.Sprint(f.value.Index(i))
		}
		return strings.Join(parts, ",")
	case reflect.Map:
		var parts []string
		for _, k := range f.value.MapKeys() {
			parts = append(parts, fmt.Sprintf("%v=%v", k, f.value.MapIndex(k)))
		}
		return strings.Join(parts, ",")
	default:
		return fmt.Sprint(f.value)
	}
}

// Set parses text into the field. Lists are separated by commas, map entries too (key=value).
func (f Field) Set(text string) error {
	v := f.value
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if v.Type() == duration {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 500ms, 5s or 2m", text)
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a number of 0 or more", text)
		}
		v.SetUint(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetFloat(n)
	case reflect.Slice:
		parts := strings.Split(text, ",")
		for i, part := range parts {
			parts[i] = strings.TrimSpace(part)
		}
		return f.setList(slices.DeleteFunc(parts, func(part string) bool { return part == "" }))
	case reflect.Map:
		entries := map[string]string{}
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			k, v, ok := strings.Cut(part, "=")
			if !ok {
				return fmt.Errorf("%q is not key=value", part)
			}
			entries[k] = v
		}
		return f.setMap(entries)
	default:
		return fmt.Errorf("a %s cannot be set", v.Type())
	}
	return nil
}

func (f Field) setList(texts []string) error {
	if f.value.Kind() != reflect.Slice {
		return fmt.Errorf("a list is given where one %s is expected", f.Type())
	}
	list := reflect.MakeSlice(f.value.Type(), 0, len(texts))
	for _, text := range texts {
		element := Field{Path: f.Path, value: reflect.New(f.value.Type().Elem()).Elem()}
		if err := element.Set(text); err != nil {
			return err
		}
		list = reflect.Append(list, element.value)
	}
	f.value.Set(list)
	return nil
}

func (f Field) setMap(texts map[string]string) error {
	if f.value.Type() != reflect.TypeFor[map[string]string]() {
		return fmt.Errorf("keys are given where one %s is expected", f.Type())
	}
	f.value.Set(reflect.ValueOf(texts))
	return nil
}
