// Package adminhttp is the small HTTP server of a node for machines and for people who debug it: metrics, health, readiness and
// profiles.
package adminhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const headerTimeout = 5 * time.Second

// Config describes a server.
type Config struct {
	// Listen is the host:port to listen on; port 0 takes a free one.
	Listen string
	// Metrics is what /metrics shows.
	Metrics prometheus.Gatherer
	// Ready returns nil while the node can do its work, else why it cannot; it is asked for each /readyz. Nil means always.
	Ready  func() error
	Logger *slog.Logger
}

// Server serves /metrics, /healthz, /readyz and, on a loopback address only, /debug/pprof/: profiles show what is in memory.
type Server struct {
	http     *http.Server
	listener net.Listener
	done     chan struct{}
}

// Start listens and serves until Shutdown.
func Start(cfg Config) (*Server, error) {
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("admin listener: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if cfg.Ready == nil {
			answer(w, nil)
			return
		}
		answer(w, cfg.Ready())
	})
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	s := &Server{
		http:     &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout},
		listener: l,
		done:     make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) && cfg.Logger != nil {
			cfg.Logger.Error("admin server ended", "error", err)
		}
	}()
	return s, nil
}

func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, err)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// Address returns the host:port the server listens on.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Shutdown lets running requests end until ctx does, then cuts them, and waits for the server's goroutine.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	<-s.done
	return err
}
