package raftnode

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/testlog"
)

// What every start and election brings is no warning; what needs somebody is.
func TestTheLibrarysMessagesGetFittingLevels(t *testing.T) {
	var log testlog.Buffer
	l := newHCLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	l.Info("entering follower state")
	l.Warn("heartbeat timeout reached, starting election", "last-leader-addr", "")
	l.Warn("rejecting vote request since we have a leader")
	l.Error("failed to heartbeat to", "peer", "jm2", "error", errors.New("connection refused"))
	l.Warn("failed to contact", "server-id", "jm2")
	l.Error("failed to restore snapshot", "error", errors.New("disk"))
	var levels []string
	for line := range strings.Lines(log.String()) {
		_, rest, _ := strings.Cut(line, "level=")
		level, _, _ := strings.Cut(rest, " ")
		levels = append(levels, level)
	}
	require.Equal(t, []string{"DEBUG", "INFO", "DEBUG", "DEBUG", "WARN", "ERROR"}, levels)
	require.Contains(t, log.String(), `error="connection refused"`)
}
