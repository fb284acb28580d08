package command

import (
	"encoding/json"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/weir-stream/weir/internal/config"
)

func (a *app) config() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Print the effective configuration of a node",
		Example: "  weir config taskmanager --config tm.yaml",
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(showConfig(a, jobManagerRole), showConfig(a, taskManagerRole))
	return cmd
}

func showConfig[C any](a *app, r role[C]) *cobra.Command {
	cmd := &cobra.Command{
		Use:   r.name,
		Short: "Print the effective configuration of a " + r.name,
		Long: "Print the settings that weir " + r.name + " would run with, given the same file, environment and flags.\n" +
			"A configuration with problems is printed all the same; then the command fails and names them.",
		Example: fmt.Sprintf("  weir config %s --config node.yaml > effective.yaml", r.name),
		Args:    exactly(),
	}
	build := r.flags(a, cmd)
	output := cmd.Flags().StringP("output", "o", "yaml", "format of the result: yaml or json")
	cmd.RunE = func(*cobra.Command, []string) error {
		if *output != "yaml" && *output != "json" {
			return &usageError{fmt.Errorf("--output: %q is neither yaml nor json", *output)}
		}
		cfg, problems := build()
		raw, err := config.Effective(&cfg)
		if err != nil {
			return err
		}
		if *output == "json" {
			if raw, err = yaml.YAMLToJSON(raw); err != nil {
				return fmt.Errorf("encoding the configuration: %w", err)
			}
			raw = indent(raw)
		}
		if _, err := a.Out.Write(raw); err != nil {
			return err
		}
		return problems
	}
	return cmd
}

// indent formats JSON.
func indent(raw []byte) []byte {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return raw
	}
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return raw
	}
	return append(out, '\n')
}
