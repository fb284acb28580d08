package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// metrics are the figures of a run by their names.
var metrics = []struct {
	name string
	of   func(result) float64
}{
	{"records_per_cpu_s", func(r result) float64 { return r.recordsPerCPUSecond }},
	{"records_per_s", func(r result) float64 { return r.recordsPerSecond }},
	{"rss_peak_mb", func(r result) float64 { return r.peakMB }},
}

// comparison is what the runs of a workload gave, by engine in the order of the rounds.
type comparison struct {
	workload workload
	engines  []engine
	runs     map[string][]result
}

func (c comparison) median(engine string, of func(result) float64) float64 {
	return middle(c.each(engine, of))
}

func (c comparison) each(engine string, of func(result) float64) []float64 {
	var all []float64
	for _, r := range c.runs[engine] {
		all = append(all, of(r))
	}
	return all
}

// ratios returns the records per CPU-second of an engine as a multiple of another's, round by round, in ascending order.
func (c comparison) ratios(engine, of string) []float64 {
	var all []float64
	for i, r := range c.runs[engine] {
		all = append(all, r.recordsPerCPUSecond/c.runs[of][i].recordsPerCPUSecond)
	}
	slices.Sort(all)
	return all
}

func middle(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

// quartile returns the lower quartile of ascending numbers.
func quartile(ascending []float64) float64 { return ascending[(len(ascending)-1)/4] }

func printTable(w io.Writer, all []comparison) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "workload\tengine\trecords per CPU-s\trecords per s\tpeak MB\tto the first: median\tlower quartile\t")
	for _, c := range all {
		for _, e := range c.engines {
			ratios := c.ratios(e.name, c.engines[0].name)
			fmt.Fprintf(t, "%s\t%s\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t\n", c.workload.name, e.name, c.median(e.name, metrics[0].of),
				c.median(e.name, metrics[1].of), c.median(e.name, metrics[2].of), middle(ratios), quartile(ratios))
		}
	}
	for _, c := range all {
		for _, e := range c.engines {
			if e.warm == warmJVM {
				ratios := c.ratios(weir.name, e.name)
				fmt.Fprintf(t, "%s\tweir to %s\t\t\t\t%.2f\t%.2f\t\n", c.workload.name, e.name, middle(ratios), quartile(ratios))
			}
		}
	}
	return t.Flush()
}

// rows are the figures of comparisons, the medians of the rounds.
func rows(all []comparison) (out [][]string) {
	for _, c := range all {
		for _, e := range c.engines {
			for _, m := range metrics {
				out = append(out, []string{c.workload.name, e.name, m.name, strconv.FormatFloat(c.median(e.name, m.of), 'f', 0, 64)})
			}
		}
	}
	return out
}

// writeCSV writes rows of workload, engine, metric and value below comments that tell the machine and the versions, if a path is given.
func writeCSV(path string, about []string, rows [][]string) error {
	if path == "" {
		return nil
	}
	var text strings.Builder
	for _, line := range about {
		fmt.Fprintf(&text, "# %s\n", line)
	}
	w := csv.NewWriter(&text)
	if err := w.WriteAll(append([][]string{{"workload", "engine", "metric", "value"}}, rows...)); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}

// machine describes what the figures were measured with.
func machine(kafka string) []string {
	model := "unknown CPU"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	revision := "unknown"
	if text, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		revision = strings.TrimSpace(string(text))
	}
	return []string{
		fmt.Sprintf("%d CPUs, %s", runtime.NumCPU(), model),
		fmt.Sprintf("%s, Apache Kafka %s, weir %s", runtime.Version(), kafka, revision),
	}
}
