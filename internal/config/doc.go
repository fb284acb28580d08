// Package config fills a role's configuration struct from its defaults, one YAML file, the environment and flags, each overriding
// the one before.
//
// The struct's `yaml` tags name the keys; nested structs nest. Every key can also be given as an environment variable
// (PREFIX_NESTED_KEY) and as a flag (--nested-key); a `help` tag describes it, a `default` tag a default that depends on the machine.
// Unknown keys in the file, unknown variables with the prefix and values that do not parse are errors; all of one source are reported
// together.
package config
