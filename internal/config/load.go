package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/pflag"
)

// File reads the YAML file at path into the struct that cfg points to. Keys that the struct does not have are errors with their line.
func File(path string, cfg any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	if err := YAML(raw, cfg); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// YAML is File for content at hand. Content without a setting, such as an empty file or one of comments only, changes nothing.
func YAML(raw []byte, cfg any) error {
	parsed, err := parser.ParseBytes(raw, 0)
	if err != nil {
		return fmt.Errorf("not valid YAML: %w", located(err))
	}
	var settings ast.Node
	for _, doc := range parsed.Docs {
		switch {
		case empty(doc.Body):
		case settings != nil:
			return fmt.Errorf("line %d: a configuration is one YAML document, and a second one begins here", doc.Body.GetToken().Position.Line)
		default:
			settings = doc.Body
		}
	}
	if settings == nil {
		return nil // the decoder would set every field to zero
	}
	if err := decode(settings, cfg); err != nil {
		return located(locate(err, settings, cfg))
	}
	return nil
}

func decode(n ast.Node, cfg any) error {
	return yaml.NewDecoder(strings.NewReader(""), yaml.Strict()).DecodeFromNode(n, cfg)
}

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

// locate adds a line to the error of a value that reads itself, which comes without one.
func locate(err error, settings ast.Node, cfg any) error {
	var e yaml.Error
	m, ok := settings.(*ast.MappingNode)
	if errors.As(err, &e) || !ok {
		return err
	}
	for _, v := range m.Values {
		one := ast.Mapping(m.Start, false, v)
		if decode(one, reflect.New(reflect.TypeOf(cfg).Elem()).Interface()) != nil {
			return fmt.Errorf("line %d: %s: %w", v.Key.GetToken().Position.Line, v.Key, err)
		}
	}
	return err
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
