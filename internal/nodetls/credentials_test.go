package nodetls_test

import (
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weir-stream/weir/internal/nodetls"
	"github.com/weir-stream/weir/internal/testca"
)

// serveGRPC returns the address of a server that answers every call with Aborted, and what it knows of its last caller.
func serveGRPC(t *testing.T, creds credentials.TransportCredentials) (address string, caller func() nodetls.Peer) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var last nodetls.Peer
	server := grpc.NewServer(grpc.Creds(creds), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		mu.Lock()
		defer mu.Unlock()
		last = nodetls.PeerOf(s.Context())
		return status.Error(codes.Aborted, "heard")
	}))
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		served.Wait()
	})
	return l.Addr().String(), func() nodetls.Peer {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// call makes one call and returns its code and what was reported about the connection.
func call(t *testing.T, address string, creds func(func(error)) credentials.TransportCredentials) (codes.Code, error) {
	var mu sync.Mutex
	var why error
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		why = err
	})))
	require.NoError(t, err)
	defer conn.Close()
	err = conn.Invoke(t.Context(), "/some.Service/Method", &emptypb.Empty{}, &emptypb.Empty{})
	mu.Lock()
	defer mu.Unlock()
	return status.Code(err), why
}

func TestWhoIsAtTheOtherEndOfACall(t *testing.T) {
	ca, users, other := authority(t, "one"), authority(t, "users"), authority(t, "other")
	var log logBuffer
	f := files(t, ca, tomorrow, ca)
	f.UserCA = filepath.Join(filepath.Dir(f.CA), "users.crt")
	trust(t, f.UserCA, users)
	address, caller := serveGRPC(t, node(t, f, &log).ServerCredentials())

	as := func(pair testca.Pair, err error) *nodetls.Keeper {
		require.NoError(t, err)
		k, err := nodetls.OpenUser(write(t, t.TempDir(), pair, ca))
		require.NoError(t, err)
		return k
	}
	anonymous, err := nodetls.OpenUser(nodetls.Files{CA: f.CA})
	require.NoError(t, err)
	team, err := users.Sub("users of a team")
	require.NoError(t, err)
	throughTeam, err := team.User("dora")
	require.NoError(t, err)
	throughTeam.Cert = append(throughTeam.Cert, team.PEM()...)
	division, err := ca.Sub("nodes of a division")
	require.NoError(t, err)
	throughDivision, err := division.Node("tm7", tomorrow)
	require.NoError(t, err)
	throughDivision.Cert = append(throughDivision.Cert, division.PEM()...)
	for _, tc := range []struct {
		who  string
		k    *nodetls.Keeper
		kind nodetls.Kind
		name string
	}{
		{"a node", as(ca.Node("tm1", tomorrow)), nodetls.Node, "CN=tm1"},
		{"a node, through an intermediate authority", as(throughDivision, nil), nodetls.Node, "CN=tm7"},
		{"a user", as(users.User("alice")), nodetls.User, "CN=alice"},
		{"a user with a certificate like a node's", as(users.Node("tm1", tomorrow)), nodetls.User, "CN=tm1"},
		{"a user, through an intermediate authority", as(throughTeam, nil), nodetls.User, "CN=dora"},
		{"nobody", anonymous, nodetls.Unknown, ""},
	} {
		t.Run(tc.who, func(t *testing.T) {
			code, why := call(t, address, tc.k.ClientCredentials)
			require.NoError(t, why)
			require.Equal(t, codes.Aborted, code)
			require.Equal(t, tc.kind, caller().Kind)
			require.Equal(t, tc.name, caller().Name)
		})
	}
	t.Run("a stranger", func(t *testing.T) {
		code, why := call(t, address, as(other.Node("tm1", tomorrow)).ClientCredentials)
		require.Equal(t, codes.Unavailable, code)
		require.ErrorIs(t, why, nodetls.ErrRefused)
		log.await(t, "CN=tm1 was issued by CN=other")
	})
	t.Run("a certificate for servers only", func(t *testing.T) {
		server, err := ca.Server("web", tomorrow)
		code, why := call(t, address, as(server, err).ClientCredentials)
		require.Equal(t, codes.Unavailable, code)
		require.ErrorIs(t, why, nodetls.ErrRefused)
		log.await(t, "CN=web lacks the extended key usage")
	})
	t.Run("without TLS", func(t *testing.T) {
		code, why := call(t, address, nodetls.PlainClientCredentials)
		require.Equal(t, codes.Unavailable, code)
		require.ErrorIs(t, why, nodetls.ErrWantsTLS)
	})
}

func TestPlainCredentials(t *testing.T) {
	var log logBuffer
	address, caller := serveGRPC(t, nodetls.PlainServerCredentials(log.logger()))
	code, why := call(t, address, nodetls.PlainClientCredentials)
	require.NoError(t, why)
	require.Equal(t, codes.Aborted, code)
	require.Equal(t, nodetls.Peer{}, caller())

	ca := authority(t, "one")
	code, why = call(t, address, node(t, files(t, ca, tomorrow, ca), &log).ClientCredentials)
	require.Equal(t, codes.Unavailable, code)
	require.ErrorIs(t, why, nodetls.ErrPlain)
	log.await(t, "connection refused", "uses TLS")
}
