package raftnode_test

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/nodetls"
	"github.com/weir-stream/weir/internal/testca"
	"github.com/weir-stream/weir/internal/testlog"
)

func keeper(t *testing.T, signed, trusted *testca.Authority, logger *slog.Logger) *nodetls.Keeper {
	dir := t.TempDir()
	pair, err := signed.Node("member", time.Now().Add(time.Hour))
	require.NoError(t, err)
	f := nodetls.Files{CA: filepath.Join(dir, "ca.crt")}
	f.Cert, f.Key, err = pair.Write(dir, "node")
	require.NoError(t, err)
	require.NoError(t, testca.WriteFile(f.CA, trusted.PEM()))
	k, err := nodetls.OpenNode(f, []string{"127.0.0.1"}, logger)
	require.NoError(t, err)
	return k
}

func TestMembersUnderTLS(t *testing.T) {
	ca, err := testca.New("members")
	require.NoError(t, err)
	other, err := testca.New("others")
	require.NoError(t, err)
	var log testlog.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	var nodes []*testNode
	all := configs(t)
	for _, cfg := range all {
		cfg.TLS, cfg.Logger = keeper(t, ca, ca, logger), logger
		nodes = append(nodes, open(t, cfg))
	}
	leader := leaderOf(t, nodes...)
	_, err = leader.Propose(t.Context(), number(7))
	require.NoError(t, err)
	for _, n := range nodes {
		eventually(t, "the entry has arrived", func() bool { return n.fsm.value() == 7 })
	}

	for name, tc := range map[string]struct {
		tls  *nodetls.Keeper
		says error
	}{
		"without TLS":             {nil, nodetls.ErrWantsTLS},
		"of another authority":    {keeper(t, other, ca, logger), nodetls.ErrRefused},
		"that trusts another one": {keeper(t, ca, other, logger), nodetls.ErrUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			var said testlog.Buffer
			cfg := all[0]
			cfg.Dir, cfg.Listen, cfg.TLS = t.TempDir(), "127.0.0.1:0", tc.tls
			cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
			stranger := open(t, cfg)
			_, err := stranger.Introduce(t.Context(), leader.cfg.ID, leader.Address())
			require.ErrorIs(t, err, tc.says)
			eventually(t, "it says why it does not begin", func() bool { return strings.Contains(said.String(), tc.says.Error()) })
			require.Zero(t, stranger.fsm.value())
		})
	}
	require.Contains(t, log.String(), "CN=member was issued by CN=others")

	// Bytes that are no TLS end the connection.
	raw, err := net.Dial("tcp", leader.Address())
	require.NoError(t, err)
	defer raw.Close()
	_, err = raw.Write([]byte("R"))
	require.NoError(t, err)
	require.NoError(t, raw.SetReadDeadline(time.Now().Add(10*time.Second)))
	answer := make([]byte, 100)
	n, err := raw.Read(answer)
	require.NoError(t, err)
	require.EqualValues(t, 0x15, answer[0], "an alert of TLS")
	require.Equal(t, 7, n)
}
