package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/pflag"
)

// File reads the YAML file at path into the struct that cfg points to. All problems are reported at once, each with its line; what has
// one keeps its value.
func File(path string, cfg any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	problems := read(raw, cfg)
	for i, p := range problems {
		problems[i] = fmt.Errorf("%s: %w", path, p)
	}
	return errors.Join(problems...)
}

// YAML is File for content at hand. Content without a setting, such as an empty file or one of comments only, changes nothing.
func YAML(raw []byte, cfg any) error { return errors.Join(read(raw, cfg)...) }

func read(raw []byte, cfg any) []error {
	parsed, err := parser.ParseBytes(raw, 0)
	if err != nil {
		return []error{fmt.Errorf("not valid YAML: %w", located(err))}
	}
	var settings ast.Node
	for _, doc := range parsed.Docs {
		switch {
		case empty(doc.Body):
		case settings != nil:
			return []error{fmt.Errorf("line %d: a configuration is one YAML document, and a second one begins here", line(doc.Body))}
		default:
			settings = doc.Body
		}
	}
	if settings == nil {
		return nil
	}
	r := reader{fields: map[string]Field{}, nested: map[string]bool{}}
	for _, f := range Fields(cfg) {
		r.fields[f.Path] = f
		for i, c := range f.Path {
			if c == '.' {
				r.nested[f.Path[:i]] = true
			}
		}
	}
	r.mapping("", settings)
	return r.problems
}

// reader sets fields to what a file says.
type reader struct {
	fields   map[string]Field
	nested   map[string]bool // keys with keys of their own
	problems []error
}

func (r *reader) bad(n ast.Node, format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf("line %d: %w", line(n), fmt.Errorf(format, args...)))
}

// mapping reads the keys below prefix, which is empty or ends in a dot.
func (r *reader) mapping(prefix string, n ast.Node) {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.bad(n, "%skey: value is expected", prefix)
		return
	}
	for it := m.MapRange(); it.Next(); {
		path := prefix + it.Key().GetToken().Value
		f, known := r.fields[path]
		switch {
		case r.nested[path]:
			r.mapping(path+".", it.Value())
		case !known:
			r.bad(it.Key(), "%s: there is no such setting", path)
		default:
			if err := f.read(it.Value()); err != nil {
				r.bad(it.Key(), "%s: %w", path, err)
			}
		}
	}
}

// read sets the field to a value of a file.
func (f Field) read(n ast.Node) error {
	switch n := n.(type) {
	case *ast.SequenceNode:
		texts := make([]string, len(n.Values))
		for i, v := range n.Values {
			var err error
			if texts[i], err = text(v); err != nil {
				return err
			}
		}
		return f.setList(texts)
	case ast.MapNode:
		texts := map[string]string{}
		for it := n.MapRange(); it.Next(); {
			v, err := text(it.Value())
			if err != nil {
				return err
			}
			texts[it.Key().GetToken().Value] = v
		}
		return f.setMap(texts)
	default:
		v, err := text(n)
		if err != nil {
			return err
		}
		return f.Set(v)
	}
}

// text returns a single value as it is written, without quotes.
func text(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.NullNode:
		return "", errors.New(`has no value; write "" for an empty one, or leave the key out`)
	case ast.ScalarNode:
		return n.GetToken().Value, nil
	default:
		return "", errors.New("one plain value is expected")
	}
}

func line(n ast.Node) int { return n.GetToken().Position.Line }

// empty reports whether a document has no content.
func empty(n ast.Node) bool {
	switch n.(type) {
	case nil, *ast.NullNode, *ast.CommentNode, *ast.CommentGroupNode:
		return true
	}
	return false
}

// located words an error of the YAML package with its place and the lines around it.
func located(err error) error {
	var e yaml.Error
	if !errors.As(err, &e) || e.GetToken() == nil {
		return err
	}
	_, source, _ := strings.Cut(strings.TrimRight(e.FormatError(false, true), "\n "), "\n")
	at := e.GetToken().Position
	text := fmt.Sprintf("line %d, column %d: %s", at.Line, at.Column, e.GetMessage())
	if source != "" {
		text += "\n" + source
	}
	return errors.New(text)
}

// Env sets the fields for which environ has a variable with the prefix, such as WEIR_TM_DATA_DIR. Variables with the prefix that
// name no field are errors, except the ignored ones.
func Env(prefix string, environ []string, cfg any, ignore ...string) error {
	fields := map[string]Field{}
	for _, f := range Fields(cfg) {
		fields[f.Env(prefix)] = f
	}
	var errs []error
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, prefix+"_") || slices.Contains(ignore, name) {
			continue
		}
		f, ok := fields[name]
		if !ok {
			errs = append(errs, fmt.Errorf("environment variable %s: no such setting", name))
			continue
		}
		if err := f.Set(value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Flags defines one flag per field on fs; their defaults are the values of cfg. The returned function sets the fields whose flags
// were given, in whatever struct of the same type it gets.
func Flags(fs *pflag.FlagSet, cfg any) (apply func(cfg any) error) {
	given := map[string]*flagValue{}
	for _, f := range Fields(cfg) {
		v := &flagValue{text: f.String(), kind: f.Type()}
		given[f.Path] = v
		flag := fs.VarPF(v, f.Flag(), "", f.Help)
		if f.Default != "" {
			flag.DefValue = f.Default
		}
		if v.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
	return func(cfg any) error {
		var errs []error
		for _, f := range Fields(cfg) {
			v, ok := given[f.Path]
			if !ok || !v.set {
				continue
			}
			if err := f.Set(v.text); err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", f.Flag(), err))
			}
		}
		return errors.Join(errs...)
	}
}

type flagValue struct {
	text, kind string
	set        bool
}

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Type() string   { return v.kind }

func (v *flagValue) Set(text string) error {
	// A list may be given by repeating the flag.
	if v.kind == "list" && v.set {
		text = v.text + "," + text
	}
	v.text, v.set = text, true
	return nil
}

// Effective writes the whole configuration as a file that would produce it.
func Effective(cfg any) ([]byte, error) {
	raw, err := yaml.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration: %w", err)
	}
	return raw, nil
}
