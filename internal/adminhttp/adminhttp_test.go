package adminhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/internal/adminhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestServesMetricsHealthAndReadiness(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_test_total"})
	reg.MustRegister(c)
	c.Inc()
	notReady := errors.New("no leader known")
	s, err := adminhttp.Start(adminhttp.Config{Listen: "127.0.0.1:0", Metrics: reg, Ready: func() error { return notReady }})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Shutdown(context.Background())) }()
	base := "http://" + s.Address()

	code, body := get(t, base+"/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "weir_test_total 1")
	code, _ = get(t, base+"/healthz")
	require.Equal(t, http.StatusOK, code)
	code, body = get(t, base+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "no leader known")
	notReady = nil
	code, _ = get(t, base+"/readyz")
	require.Equal(t, http.StatusOK, code)
	code, _ = get(t, base+"/debug/pprof/")
	require.Equal(t, http.StatusOK, code)
}

func TestProfilesOnLoopbackOnly(t *testing.T) {
	s, err := adminhttp.Start(adminhttp.Config{Listen: "0.0.0.0:0", Metrics: prometheus.NewRegistry()})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Shutdown(context.Background())) }()
	code, _ := get(t, "http://"+s.Address()+"/debug/pprof/")
	require.Equal(t, http.StatusNotFound, code)
}
