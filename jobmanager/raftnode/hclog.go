package raftnode

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// slogSink passes the Raft library's messages on to slog.
type slogSink struct {
	logger *slog.Logger
}

var _ hclog.SinkAdapter = slogSink{}

func newHCLogger(logger *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Output: io.Discard, Level: hclog.Error})
	l.RegisterSink(slogSink{logger: logger.With("component", "raft")})
	return l
}

// Accept implements hclog.SinkAdapter. The library's Info is about every election and heartbeat, so it becomes Debug.
func (s slogSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case hclog.Warn:
		to = slog.LevelWarn
	case hclog.Error:
		to = slog.LevelError
	case hclog.Off:
		return
	}
	ctx := context.Background()
	if !s.logger.Enabled(ctx, to) {
		return
	}
	attrs := make([]slog.Attr, 0, len(args)/2)
	for i := 0; i+1 < len(args); i += 2 {
		attrs = append(attrs, slog.Any(fmt.Sprint(args[i]), args[i+1]))
	}
	s.logger.LogAttrs(ctx, to, msg, attrs...) //nolint:sloglint // the library's message
}
