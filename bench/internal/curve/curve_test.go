package curve_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/bench/internal/curve"
)

var rows = []curve.Row{
	{Curve: "keys", Series: "count, by key", X: 10_000, Metric: curve.RecordsPerCPUSecond, Value: 2_000_000},
	{Curve: "keys", Series: "count, by key", X: 1_000_000, Metric: curve.RecordsPerCPUSecond, Value: 1_500_000},
	{Curve: "keys", Series: "count, by key", X: 10_000, Metric: curve.RecordsPerSecond, Value: 1_000},
	{Curve: "keys", Series: "count, by key", X: 1_000_000, Metric: curve.RecordsPerSecond, Value: 900},
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "growth.csv")
	require.NoError(t, curve.Write(path, []string{"2 CPUs, of some kind"}, rows))
	read, err := curve.Read(path)
	require.NoError(t, err)
	require.Equal(t, rows, read)
}

func TestDamagedFilesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "growth.csv")
	for _, text := range []string{"curve,series,x,metric,value\nkeys,a,many,m,1\n", "curve,series,x,metric,value\nkeys,a,1,m,much\n", "curve,series,x,metric,value\nkeys,a\n"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := curve.Read(path)
		require.Error(t, err)
	}
}

// A picture is an SVG document with its axes, its values and its legend as text.
func TestPictureHasItsLabels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.svg")
	p := curve.Picture{Title: "Keys of a count", X: "keys", LogX: true, Panels: curve.Throughput, Rows: rows}
	require.NoError(t, p.Save(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	d := xml.NewDecoder(strings.NewReader(string(text)))
	d.Strict = true
	var all []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if c, ok := token.(xml.CharData); ok {
			all = append(all, strings.TrimSpace(string(c)))
		}
	}
	for _, want := range []string{"Keys of a count", "keys", "records per second", "10 k", "1 M", "2 M", "count, by key, of CPU time", "count, by key, on the clock"} {
		require.Contains(t, all, want)
	}
}
