package access_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/nodetls"
	"github.com/weir-stream/weir/jobmanager/access"
	"github.com/weir-stream/weir/jobmanager/rpc"
)

const (
	session = clusterv1.SessionService_Session_FullMethodName
	members = clusterv1.MembershipService_ListMembers_FullMethodName
	submit  = jobv1.JobService_SubmitJob_FullMethodName

	alice = "alices-token-0123456789"
)

var (
	nobody = nodetls.Peer{}
	user   = nodetls.Peer{Kind: nodetls.User, Name: "CN=bob"}
	node   = nodetls.Peer{Kind: nodetls.Node, Name: "CN=tm1"}
)

func tokens(t *testing.T, content string, logger *slog.Logger) (*access.Tokens, string) {
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	tk, err := access.OpenTokens(file, logger)
	require.NoError(t, err)
	return tk, file
}

func call(p *access.Policy, method string, caller nodetls.Peer, token string) error {
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 7}, AuthInfo: caller})
	if token != "" {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+token))
	}
	_, err := p.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
	return err
}

func TestWhoMayCallWhat(t *testing.T) {
	some, _ := tokens(t, alice+" alice\n", slog.New(slog.DiscardHandler))
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for _, tc := range []struct {
		name    string
		tls     bool
		tokens  *access.Tokens
		caller  nodetls.Peer
		token   string
		refused map[string]error
		says    string
	}{
		{"no security", false, nil, nodetls.Peer{}, "", nil, ""},
		{"no security, a token all the same", false, nil, nodetls.Peer{}, alice, nil, ""},
		{"tokens only, none given", false, some, nodetls.Peer{}, "", map[string]error{members: grpcerr.ErrUnauthenticated, submit: grpcerr.ErrUnauthenticated}, "demands a token"},
		{"tokens only, wrong one", false, some, nodetls.Peer{}, "wrong-" + alice, map[string]error{members: grpcerr.ErrUnauthenticated, submit: grpcerr.ErrUnauthenticated}, "not one that this JobManager knows"},
		{"tokens only, right one", false, some, nodetls.Peer{}, alice, nil, ""},
		{"tls, nothing shown", true, some, nobody, "", map[string]error{session: grpcerr.ErrRefused, members: grpcerr.ErrUnauthenticated, submit: grpcerr.ErrUnauthenticated}, "token or a client certificate"},
		{"tls, right token", true, some, nobody, alice, map[string]error{session: grpcerr.ErrRefused}, ""},
		{"tls, wrong token", true, some, nobody, "wrong-" + alice, map[string]error{session: grpcerr.ErrRefused, members: grpcerr.ErrUnauthenticated, submit: grpcerr.ErrUnauthenticated}, "not one that this"},
		{"tls without tokens, a token", true, nil, nobody, alice, map[string]error{session: grpcerr.ErrRefused, members: grpcerr.ErrUnauthenticated, submit: grpcerr.ErrUnauthenticated}, "accepts none"},
		{"tls, a user", true, nil, user, "", map[string]error{session: grpcerr.ErrRefused}, ""},
		{"tls, a user with a token", true, some, user, alice, map[string]error{session: grpcerr.ErrRefused}, "CN=bob is a user's certificate"},
		{"tls, a node", true, some, node, "", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := access.New(tc.tls, tc.tokens, logger)
			var said []string
			for _, method := range []string{session, members, submit} {
				err := call(p, method, tc.caller, tc.token)
				require.ErrorIs(t, err, tc.refused[method], method)
				if tc.refused[method] == nil {
					require.NoError(t, err, method)
				} else {
					said = append(said, err.Error())
				}
			}
			require.Contains(t, strings.Join(said, "\n"), tc.says)
			require.ErrorIs(t, call(p, "/weir.other.v1.Other/Do", node, alice), grpcerr.ErrForbidden, "a service that nobody has thought of")
		})
	}
	require.Contains(t, log.String(), "10.0.0.9")
	require.NotContains(t, log.String(), alice)
}

func TestTheStreamInterceptorDecidesToo(t *testing.T) {
	p := access.New(true, nil, slog.New(slog.DiscardHandler))
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{}, AuthInfo: user})
	err := p.Stream(nil, stream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: session}, func(any, grpc.ServerStream) error {
		t.Error("the handler was called")
		return nil
	})
	require.ErrorIs(t, err, grpcerr.ErrRefused)
}

type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

// A new service must not be forgotten in the table.
func TestEveryServiceOfAJobManagerIsKnown(t *testing.T) {
	server := grpc.NewServer()
	rpc.New(nil, nil, nil, nil).Register(server)
	require.NotEmpty(t, server.GetServiceInfo())
	for service := range server.GetServiceInfo() {
		require.NoError(t, call(access.New(true, nil, slog.New(slog.DiscardHandler)), "/"+service+"/Any", node, ""), service)
	}
}

func TestChangesAreLoggedWithWhoAskedForThem(t *testing.T) {
	var log bytes.Buffer
	some, _ := tokens(t, alice+" alice\n", slog.New(slog.DiscardHandler))
	p := access.New(true, some, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, call(p, members, user, ""))
	require.NoError(t, call(p, jobv1.JobService_GetJob_FullMethodName, nobody, alice))
	require.NoError(t, call(p, session, node, ""))
	require.Empty(t, log.String(), "looking changes nothing")
	require.NoError(t, call(p, submit, nobody, alice))
	require.Contains(t, log.String(), `msg="change asked for" method=`+submit+` by=alice remote=10.0.0.9:7`)
	require.NoError(t, call(p, clusterv1.MembershipService_RemoveMember_FullMethodName, user, ""))
	require.Contains(t, log.String(), "by=\"CN=bob\"")
	log.Reset()
	require.NoError(t, call(access.New(false, nil, slog.New(slog.NewTextHandler(&log, nil))), submit, nodetls.Peer{}, ""))
	require.Empty(t, log.String(), "without security nobody is known")
}

func TestCodes(t *testing.T) {
	require.Equal(t, codes.Unauthenticated, status.Code(grpcerr.Encode(grpcerr.ErrUnauthenticated)))
	require.Equal(t, codes.PermissionDenied, status.Code(grpcerr.Encode(grpcerr.ErrForbidden)))
}

func TestTokensAreReadAgain(t *testing.T) {
	var log bytes.Buffer
	tk, file := tokens(t, "# people\n\n"+alice+"\talice of the shift\nbobs-token-0123456789\n", slog.New(slog.NewTextHandler(&log, nil)))
	name, ok := tk.User(alice)
	require.True(t, ok)
	require.Equal(t, "alice of the shift", name)
	name, ok = tk.User("bobs-token-0123456789")
	require.True(t, ok)
	require.Equal(t, "token of line 4", name)
	for _, wrong := range []string{"", "#", alice[:10], alice + " ", "alice of the shift"} {
		_, ok = tk.User(wrong)
		require.False(t, ok, wrong)
	}

	require.NoError(t, os.WriteFile(file, []byte("carols-token-0123456789 carol\n"), 0o600))
	_, ok = tk.User(alice)
	require.False(t, ok, "taken away")
	_, ok = tk.User("carols-token-0123456789")
	require.True(t, ok)

	require.NoError(t, os.WriteFile(file, []byte("short-secret\n"), 0o600))
	_, ok = tk.User("carols-token-0123456789")
	require.True(t, ok, "a file that cannot be used leaves the former tokens in force")
	_, ok = tk.User("short-secret")
	require.False(t, ok)
	require.Contains(t, log.String(), "line 1: a token has at least 20 characters")
	require.NotContains(t, log.String(), "short-secret")

	require.NoError(t, os.WriteFile(file, nil, 0o644))
	require.NoError(t, os.Chmod(file, 0o644))
	_, ok = tk.User("carols-token-0123456789")
	require.False(t, ok, "an empty file is a file without tokens")
	require.Contains(t, log.String(), "can be read by every user")
}
