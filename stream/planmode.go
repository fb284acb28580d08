package stream

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/version"
)

// writePlan plans the job and writes the result, errors of the job included, to a file. Only what prevents the writing is an error.
func writePlan(job func(*Env) error, o PlanOptions, path string) error {
	if path == "" {
		return fmt.Errorf("%s: no file named to write the plan to", envPlanOutput)
	}
	result := &jobv1.PlanResult{ProtocolMin: version.ProtocolMin, ProtocolMax: version.ProtocolMax}
	program, err := Plan(job, o)
	if err != nil {
		for _, e := range split(err) {
			result.Errors = append(result.Errors, e.Error())
		}
	} else {
		result.Graph = graph.ToProto(program.Graph)
	}
	data, err := proto.Marshal(result)
	if err != nil {
		return fmt.Errorf("encoding the plan: %w", err)
	}
	// A reader sees the whole plan or none.
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	return nil
}

var reference = regexp.MustCompile(`\$\{(env|file):([^}]*)\}`)

// resolveArgs replaces ${env:NAME} and ${file:PATH} in arguments. A file's last line break is left out. Whatever cannot be resolved
// is an error that names the reference and never a value.
func resolveArgs(args []string, getenv func(string) string) ([]string, error) {
	var problems graph.Errors
	resolved := make([]string, len(args))
	for i, arg := range args {
		resolved[i] = reference.ReplaceAllStringFunc(arg, func(ref string) string {
			m := reference.FindStringSubmatch(ref)
			if m[1] == "env" {
				v := getenv(m[2])
				if v == "" {
					problems = append(problems, fmt.Errorf("argument %d: %s: the environment variable is not set", i, ref))
				}
				return v
			}
			data, err := os.ReadFile(m[2])
			if err != nil {
				problems = append(problems, fmt.Errorf("argument %d: %s: %w", i, ref, err))
			}
			return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
		})
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return resolved, nil
}
