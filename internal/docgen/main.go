// Command docgen writes the reference pages that follow from the code: the command line and the configuration keys.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/weir-stream/weir/cmd/weir/command"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/taskmanager"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: docgen DIR")
	}
	if err := write(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func write(dir string) error {
	var cli bytes.Buffer
	fmt.Fprintf(&cli, "# Command line\n\nGenerated from the code.\n\n")
	if err := commands(&cli, command.New(command.IO{Out: io.Discard, Err: io.Discard})); err != nil {
		return err
	}
	var config bytes.Buffer
	fmt.Fprintf(&config, "# Configuration keys\n\nGenerated from the code. Each key of a role's YAML file is also a flag (`--data-dir`) and an environment\n"+
		"variable (`WEIR_JM_DATA_DIR`, `WEIR_TM_DATA_DIR`); a flag wins over the environment, which wins over the file.\n"+
		"`weir config jobmanager|taskmanager --config FILE` prints what is in effect.\n")
	tm := taskmanager.Default()
	tm.Host, tm.Slots = "(host name)", 0 // they depend on the machine
	keys(&config, "JobManager", reflect.ValueOf(jobmanager.Default()))
	keys(&config, "TaskManager", reflect.ValueOf(tm))
	for name, text := range map[string][]byte{"cli.md": cli.Bytes(), "config.md": config.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func commands(w io.Writer, c *cobra.Command) error {
	c.DisableAutoGenTag = true
	c.InitDefaultHelpFlag()
	link := func(name string) string {
		return "#" + strings.ReplaceAll(strings.TrimSuffix(name, ".md"), "_", "-")
	}
	if err := doc.GenMarkdownCustom(c, w, link); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "completion" && sub.Name() != "help" {
			if err := commands(w, sub); err != nil {
				return err
			}
		}
	}
	return nil
}

func keys(w io.Writer, role string, defaults reflect.Value) {
	fmt.Fprintf(w, "\n## %s\n\n| Key | Default | Meaning |\n|---|---|---|\n", role)
	for i := range defaults.NumField() {
		f := defaults.Type().Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "" {
			continue
		}
		text := strings.Trim(fmt.Sprint(defaults.Field(i).Interface()), "[]")
		switch {
		case key == "slots":
			text = "number of CPUs"
		case key == "state_memory":
			text = "a quarter of the memory"
		case text == "":
			text = " "
		default:
			text = "`" + text + "`"
		}
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", key, text, f.Tag.Get("help"))
	}
}
