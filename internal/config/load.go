package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
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

// YAML is File for content at hand.
func YAML(raw []byte, cfg any) error {
	dec := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict())
	if err := dec.Decode(cfg); err != nil && !errors.Is(err, io.EOF) {
		return errors.New(strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	return nil
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
