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

// levels are those of messages that the library rates higher than they deserve: what every start and every election brings, and each of
// the requests that a member which is down does not answer. That a leader misses a member it says once more, as "failed to contact".
var levels = map[string]slog.Level{
	"no known peers, aborting election":                 slog.LevelDebug, // it has not been introduced yet
	"heartbeat timeout reached, starting election":      slog.LevelInfo,
	"Election timeout reached, restarting election":     slog.LevelInfo,
	"new leader elected, stepping down":                 slog.LevelInfo,
	"rejecting vote request since we have a leader":     slog.LevelDebug,
	"rejecting pre-vote request since we have a leader": slog.LevelDebug,
	"duplicate requestVote from":                        slog.LevelDebug,
	"previous log term mis-match":                       slog.LevelDebug,
	"failed to get previous log":                        slog.LevelDebug,
	"appendEntries rejected, sending older logs":        slog.LevelDebug,
	"failed to make requestVote RPC":                    slog.LevelDebug,
	"failed to appendEntries to":                        slog.LevelDebug,
	"failed to heartbeat to":                            slog.LevelDebug,
	"failed to pipeline appendEntries":                  slog.LevelDebug,
	"failed to start pipeline replication to":           slog.LevelDebug,
	"peer has newer term, stopping replication":         slog.LevelInfo,
	"failed to flush response":                          slog.LevelDebug,
}

// Accept implements hclog.SinkAdapter. The library's Info is about every election and heartbeat, so it becomes Debug.
func (s slogSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to, rated := levels[msg]
	switch {
	case rated:
	case level == hclog.Warn:
		to = slog.LevelWarn
	case level == hclog.Error:
		to = slog.LevelError
	case level == hclog.Off:
		return
	default:
		to = slog.LevelDebug
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
