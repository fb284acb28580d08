package session_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	"github.com/weir-stream/weir/internal/nodetls"
	"github.com/weir-stream/weir/internal/testca"
	"github.com/weir-stream/weir/internal/testlog"
	"github.com/weir-stream/weir/taskmanager/session"
)

// A JobManager that cannot be talked to is told in the log, with the reason in words.
func TestWhyThereIsNoSessionIsLogged(t *testing.T) {
	mine, other := keeper(t), keeper(t)
	for name, tc := range map[string]struct {
		server credentials.TransportCredentials
		client *nodetls.Keeper
		says   error
	}{
		"TLS there only":    {mine.ServerCredentials(), nil, nodetls.ErrWantsTLS},
		"TLS here only":     {nodetls.PlainServerCredentials(slog.New(slog.DiscardHandler)), mine, nodetls.ErrPlain},
		"another authority": {mine.ServerCredentials(), other, nodetls.ErrUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			server := grpc.NewServer(grpc.Creds(tc.server))
			clusterv1.RegisterSessionServiceServer(server, &jobManager{})
			var served sync.WaitGroup
			served.Go(func() { _ = server.Serve(l) })
			defer served.Wait()
			defer server.Stop()

			var log testlog.Buffer
			s := session.New(session.Config{
				Addresses: []string{l.Addr().String()}, Register: &clusterv1.Register{}, Handler: &handler{}, TLS: tc.client, UsualSearch: time.Millisecond,
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			ctx, cancel := context.WithCancel(t.Context())
			var ran sync.WaitGroup
			ran.Go(func() { _ = s.Run(ctx) })
			defer ran.Wait()
			defer cancel()
			deadline := time.Now().Add(patience)
			for !strings.Contains(log.String(), l.Addr().String()+": "+tc.says.Error()) {
				require.True(t, time.Now().Before(deadline), log.String())
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
}

// keeper is that of a node of a cluster of its own.
func keeper(t *testing.T) *nodetls.Keeper {
	ca, err := testca.New("cluster")
	require.NoError(t, err)
	pair, err := ca.Node("node", time.Now().Add(time.Hour))
	require.NoError(t, err)
	dir := t.TempDir()
	f := nodetls.Files{CA: filepath.Join(dir, "ca.crt")}
	require.NoError(t, testca.WriteFile(f.CA, ca.PEM()))
	f.Cert, f.Key, err = pair.Write(dir, "node")
	require.NoError(t, err)
	k, err := nodetls.OpenNode(f, []string{"127.0.0.1"}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return k
}
