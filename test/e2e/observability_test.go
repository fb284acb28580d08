package e2e_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

func TestNodesServeMetricsHealthAndProfiles(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	run := c.StartOrders(10_000, 2000)
	id := c.Submit(nil, run.Args()...)
	c.WaitState(id, "RUNNING", 20*time.Second)
	run.AwaitOutput(time.Now(), 30*time.Second)
	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	require.NoError(t, err)
	documented := string(reference)
	served := 0
	for _, p := range append(c.JobManagers(), c.TaskManagers()...) {
		for _, path := range []string{"/healthz", "/readyz", "/debug/pprof/"} {
			body, code := get(t, "http://"+p.Admin+path)
			require.Equal(t, http.StatusOK, code, "%s of %s: %s", path, p.ID, body)
		}
		body, code := get(t, "http://"+p.Admin+"/metrics")
		require.Equal(t, http.StatusOK, code)
		lines := bufio.NewScanner(strings.NewReader(body))
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) > 3 && fields[1] == "TYPE" && strings.HasPrefix(fields[2], "weir_") {
				served++
				require.Contains(t, documented, "`"+fields[2]+"`", "docs/reference/metrics.md")
			}
		}
	}
	require.Greater(t, served, 10, "metrics of Weir's own")

	// The list shows what people look for first.
	harness.Eventually(t, 20*time.Second, "the list to show a rate", func() error {
		var v struct {
			Jobs []struct {
				RecordsPerSecond float64 `json:"recordsPerSecond"`
				LagRecords       string  `json:"lagRecords"`
			} `json:"jobs"`
		}
		require.NoError(t, json.Unmarshal([]byte(c.MustWeir("list", "-o", "json")), &v))
		if len(v.Jobs) != 1 || v.Jobs[0].RecordsPerSecond <= 0 || v.Jobs[0].LagRecords == "" || v.Jobs[0].LagRecords == "-1" {
			return &missingError{"a rate and a lag", c.MustWeir("list")}
		}
		return nil
	})
	t.Logf("\n%s", c.MustWeir("list"))
	t.Logf("\n%s", c.MustWeir("show", id))
	t.Logf("\n%s", c.MustWeir("checkpoints", id))
	t.Logf("\n%s", c.MustWeir("members"))
}

func get(t *testing.T, url string) (body string, code int) {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text), resp.StatusCode
}
