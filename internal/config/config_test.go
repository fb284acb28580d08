package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/config"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/taskmanager"
)

type settings struct {
	Name    string              `yaml:"name" help:"a name"`
	Wait    time.Duration       `yaml:"wait_time"`
	Size    config.Bytes        `yaml:"size"`
	Hosts   []string            `yaml:"hosts"`
	On      bool                `yaml:"on"`
	Count   uint32              `yaml:"count"`
	Ratio   float64             `yaml:"ratio"`
	Labels  map[string]string   `yaml:"labels"`
	Nested  nested              `yaml:"nested"`
	Members []jobmanager.Member `yaml:"members"`
	hidden  int
	Code    func() `yaml:"-"`
}

type nested struct {
	Port int `yaml:"port"`
}

func TestFileEnvironmentAndFlagsOverrideInOrder(t *testing.T) {
	cfg := settings{Name: "default", Wait: time.Second, Size: 1 << 20, Count: 1}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	apply := config.Flags(flags, &cfg)
	require.NoError(t, flags.Parse([]string{"--hosts", "c,d", "--hosts=e", "--on", "--nested-port=9", "--count", "7"}))

	require.NoError(t, config.YAML([]byte("name: file\nwait_time: 250ms\nsize: 3GiB\nnested:\n  port: 1\nmembers: [a=h:1]\nlabels: {x: y}\nratio: 0.5\n"), &cfg))
	require.NoError(t, config.Env("WEIR_X", []string{"WEIR_X_COUNT=5", "WEIR_X_NESTED_PORT=2", "WEIR_X_WAIT_TIME=2s", "HOME=/", "WEIR_X_MEMBERS=b=h:2,c=h:3"}, &cfg))
	require.NoError(t, apply(&cfg))
	want := settings{
		Name: "file", Wait: 2 * time.Second, Size: 3 << 30, Hosts: []string{"c", "d", "e"}, On: true, Count: 7, Ratio: 0.5,
		Labels: map[string]string{"x": "y"}, Nested: nested{9}, Members: []jobmanager.Member{{ID: "b", RaftAddress: "h:2"}, {ID: "c", RaftAddress: "h:3"}},
	}
	require.Equal(t, want, cfg)
	_ = cfg.hidden
}

func TestAllProblemsOfAFileAreReportedWithTheirLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tm.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`name: a
wait_tme: 5s
count: many
"on": maybe
hosts: {a: b}
wait_time: [1s]
nested:
  prt: 3
  port: x
members:
  - a=h:1
  - b
ratio:
labels: text
size: 1GiB
`), 0o600))
	cfg := settings{Count: 3}
	err := config.File(path, &cfg)
	require.EqualError(t, err, strings.ReplaceAll(`FILE: line 2: wait_tme: there is no such setting
FILE: line 3: count: "many" is not a number of 0 or more
FILE: line 4: on: "maybe" is neither true nor false
FILE: line 5: hosts: keys are given where one list is expected
FILE: line 6: wait_time: a list is given where one duration is expected
FILE: line 8: nested.prt: there is no such setting
FILE: line 9: nested.port: "x" is not a number
FILE: line 10: members: member "b" is not of the form id=host:port
FILE: line 13: ratio: has no value; write "" for an empty one, or leave the key out
FILE: line 14: labels: "text" is not key=value`, "FILE", path))
	require.Equal(t, settings{Name: "a", Count: 3, Size: 1 << 30}, cfg, "what has a problem keeps its value")
}

func TestAFileWithoutSettingsChangesNothing(t *testing.T) {
	for _, content := range []string{"", "\n", "# only\n# comments\n", "---\n", "---\n# comment\n...\n", "null\n"} {
		cfg := settings{Name: "default", Wait: time.Second, Hosts: []string{"a"}, Nested: nested{3}}
		want := cfg
		require.NoError(t, config.YAML([]byte(content), &cfg), "%q", content)
		require.Equal(t, want, cfg, "%q", content)
	}
}

func TestMalformedFilesAreExplainedWithTheirPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tm.yaml")
	for content, says := range map[string][]string{
		"name: a\nhosts: [a\n":              {"not valid YAML", "line 2, column 8"},
		"name: a\n  count: 1\n":             {"not valid YAML", "line 1, column 7"},
		"- name\n":                          {"line 1", "key: value is expected"},
		"name: a\nname: b\n":                {"line 2", "name"},
		"name: a\n---\nname: b\n":           {"line 3", "one YAML document"},
		"name: a\ncount: 1\nwait_time: x\n": {"line 3: wait_time", "not a duration"},
		"wait_time: x\n":                    {"line 1: wait_time", "not a duration"},
		"name: a\nmembers: [x]\n":           {"line 2: members", "id=host:port"},
		"name: a\nsize: much\n":             {"line 2", "size"},
	} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		err := config.File(path, &settings{})
		require.ErrorContains(t, err, path)
		for _, text := range says {
			require.ErrorContains(t, err, text, content)
		}
	}
}

func TestEnvironmentProblemsAreReportedTogether(t *testing.T) {
	err := config.Env("WEIR_X", []string{"WEIR_X_NOPE=1", "WEIR_X_COUNT=-1", "WEIR_X_WAIT_TIME=soon", "WEIR_X_ON=maybe", "WEIR_X_IGNORED=1"}, &settings{}, "WEIR_X_IGNORED")
	for _, name := range []string{"WEIR_X_NOPE", "WEIR_X_COUNT", "WEIR_X_WAIT_TIME", "WEIR_X_ON"} {
		require.ErrorContains(t, err, name)
	}
	require.NotContains(t, err.Error(), "WEIR_X_IGNORED")
}

func TestEffectiveConfigurationReadsBack(t *testing.T) {
	jm := jobmanager.Default()
	jm.Members = []jobmanager.Member{{ID: "jm1", RaftAddress: "h:1"}}
	for _, roundTrip := range []func() (any, any){
		func() (any, any) { tm := taskmanager.Default(); return &tm, &taskmanager.Config{} },
		func() (any, any) { return &jm, &jobmanager.Config{} },
	} {
		from, to := roundTrip()
		raw, err := config.Effective(from)
		require.NoError(t, err)
		require.NoError(t, config.YAML(raw, to), string(raw))
		back, err := config.Effective(to)
		require.NoError(t, err)
		require.Equal(t, string(raw), string(back))
	}
}

func TestHostPort(t *testing.T) {
	host, port, err := config.HostPort("[::1]:6123")
	require.NoError(t, err)
	require.Equal(t, "::1", host)
	require.Equal(t, 6123, port)
	for _, bad := range []string{"", "h", "h:", "h:x", "h:70000", "h:-1", "::1:5"} {
		_, _, err := config.HostPort(bad)
		require.ErrorContains(t, err, "is not host:port", bad)
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "17": 17, "64KiB": 64 << 10, "1 GiB": 1 << 30, "500mb": 500e6, "2TiB": 2 << 40, "5B": 5} {
		var b config.Bytes
		require.NoError(t, b.UnmarshalText([]byte(text)))
		require.EqualValues(t, want, b, text)
		var again config.Bytes
		require.NoError(t, again.UnmarshalText([]byte(b.String())))
		require.Equal(t, b, again)
	}
	for _, bad := range []string{"", "-1", "1.5GiB", "GiB", "9999999TiB", "x"} {
		var b config.Bytes
		require.Error(t, b.UnmarshalText([]byte(bad)), bad)
	}
}

func FuzzBytes(f *testing.F) {
	f.Add("1GiB")
	f.Fuzz(func(t *testing.T, text string) {
		var b, again config.Bytes
		if b.UnmarshalText([]byte(text)) != nil {
			return
		}
		require.NoError(t, again.UnmarshalText([]byte(b.String())))
		require.Equal(t, b, again)
	})
}
