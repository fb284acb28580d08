package command

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/weir-stream/weir/internal/version"
)

func (a *app) version() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  weir version -o json",
		Args:    exactly(),
	}
	output := cmd.Flags().StringP("output", "o", "text", "format of the result: text or json")
	cmd.RunE = func(*cobra.Command, []string) error {
		switch *output {
		case "json":
			e := json.NewEncoder(a.Out)
			e.SetIndent("", "  ")
			return e.Encode(map[string]any{
				"version": version.Version, "protocolMin": version.ProtocolMin, "protocolMax": version.ProtocolMax,
				"platform": runtime.GOOS + "/" + runtime.GOARCH, "go": runtime.Version(),
			})
		case "text":
			fmt.Fprintf(a.Out, "weir %s, protocol %d to %d, %s/%s, %s\n",
				version.Version, version.ProtocolMin, version.ProtocolMax, runtime.GOOS, runtime.GOARCH, runtime.Version())
			return nil
		default:
			return &usageError{fmt.Errorf("--output: %q is neither text nor json", *output)}
		}
	}
	return cmd
}
