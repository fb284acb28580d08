// Package curve keeps the figures of growth curves in CSV files and draws pictures of them.
package curve

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Row is one figure.
type Row struct {
	// Curve is what grows, Series one of the lines of its picture.
	Curve, Series string
	// X is how large it is.
	X      float64
	Metric string
	Value  float64
}

// Names of metrics.
const (
	RecordsPerCPUSecond  = "records_per_cpu_s"
	RecordsPerSecond     = "records_per_s"
	NanosecondsPerRecord = "ns_per_record"
	BytesPerCPUSecond    = "bytes_per_cpu_s"
	BytesPerSecond       = "bytes_per_s"
	PeakMB               = "rss_peak_mb"
)

var header = []string{"curve", "series", "x", "metric", "value"}

// Write writes rows to a CSV file, below lines of comment.
func Write(path string, about []string, rows []Row) error {
	var text strings.Builder
	for _, line := range about {
		fmt.Fprintf(&text, "# %s\n", line)
	}
	w := csv.NewWriter(&text)
	all := [][]string{header}
	for _, r := range rows {
		all = append(all, []string{r.Curve, r.Series, strconv.FormatFloat(r.X, 'f', -1, 64), r.Metric, strconv.FormatFloat(r.Value, 'f', 0, 64)})
	}
	if err := w.WriteAll(all); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}

// Read reads what Write has written.
func Read(path string) ([]Row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment = '#'
	r.FieldsPerRecord = len(header)
	lines, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	var out []Row
	for _, l := range lines[min(1, len(lines)):] {
		x, err := strconv.ParseFloat(l[2], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		v, err := strconv.ParseFloat(l[4], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, Row{l[0], l[1], x, l[3], v})
	}
	return out, nil
}
