package client_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/client"
	"github.com/weir-stream/weir/internal/nodetls"
	"github.com/weir-stream/weir/internal/testca"
)

// guarded is a fake JobManager that takes note of the authorization that calls come with.
type guarded struct {
	jobv1.UnimplementedJobServiceServer
	mu   sync.Mutex
	seen []string
}

func (g *guarded) SubmitJob(ctx context.Context, _ *jobv1.SubmitJobRequest) (*jobv1.SubmitJobResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, md.Get("authorization")...)
	return &jobv1.SubmitJobResponse{}, nil
}

// guard serves under TLS, or without it, and returns the address and the authority's file.
func guard(t *testing.T, secure bool) (g *guarded, address, ca string) {
	authority, err := testca.New("cluster")
	require.NoError(t, err)
	dir := t.TempDir()
	ca = filepath.Join(dir, "ca.crt")
	require.NoError(t, testca.WriteFile(ca, authority.PEM()))
	creds := nodetls.PlainServerCredentials(slog.New(slog.DiscardHandler))
	if secure {
		pair, err := authority.Node("jm1", time.Now().Add(time.Hour))
		require.NoError(t, err)
		cert, key, err := pair.Write(dir, "jm1")
		require.NoError(t, err)
		k, err := nodetls.OpenNode(nodetls.Files{Cert: cert, Key: key, CA: ca}, []string{"127.0.0.1"}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		creds = k.ServerCredentials()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g = &guarded{}
	server := grpc.NewServer(grpc.Creds(creds))
	jobv1.RegisterJobServiceServer(server, g)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		served.Wait()
	})
	return g, l.Addr().String(), ca
}

func connect(t *testing.T, cfg client.Config, ca string) *client.Client {
	cfg.Patience = time.Hour // nothing here waits
	if ca != "" {
		k, err := nodetls.OpenUser(nodetls.Files{CA: ca})
		require.NoError(t, err)
		cfg.TLS = k
	}
	c := client.New(cfg)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestTheTokenGoesWithEachCall(t *testing.T) {
	for name, secure := range map[string]bool{"tls": true, "plain, on this machine": false} {
		t.Run(name, func(t *testing.T) {
			g, address, ca := guard(t, secure)
			if !secure {
				ca = ""
			}
			_, err := submit(t.Context(), connect(t, client.Config{Addresses: []string{address}, Token: "abc"}, ca))
			require.NoError(t, err)
			require.Equal(t, []string{"Bearer abc"}, g.seen)
		})
	}
}

func TestTroubleThatWaitingDoesNotMendIsSaidAtOnce(t *testing.T) {
	_, secure, _ := guard(t, true)
	_, plain, other := guard(t, false)
	for name, tc := range map[string]struct {
		address, ca string
		is          error
	}{
		"no TLS here":       {secure, "", nodetls.ErrWantsTLS},
		"no TLS there":      {plain, other, nodetls.ErrPlain},
		"another authority": {secure, other, nodetls.ErrUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := submit(t.Context(), connect(t, client.Config{Addresses: []string{tc.address}}, tc.ca))
			require.ErrorIs(t, err, tc.is)
			require.ErrorContains(t, err, "no JobManager can be talked to: asked "+tc.address+" (the other side")
			var unknown *client.UnknownOutcomeError
			require.NotErrorAs(t, err, &unknown, "nothing was sent")
		})
	}
}

func TestTokensStayOnThisMachineWithoutTLS(t *testing.T) {
	// An address of a network for documentation: nothing may be sent there.
	_, err := submit(t.Context(), connect(t, client.Config{Addresses: []string{"192.0.2.1:6123"}, Token: "abc"}, ""))
	require.True(t, client.TokenInClear(err), err)
	require.NotContains(t, err.Error(), "abc")
}
