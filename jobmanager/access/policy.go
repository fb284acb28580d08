package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/nodetls"
)

// demand is what a service asks of its callers.
type demand int

const (
	forNodes demand = iota + 1
	forUsers        // and for nodes
)

var demands = map[string]demand{
	clusterv1.SessionService_ServiceDesc.ServiceName:    forNodes,
	clusterv1.MembershipService_ServiceDesc.ServiceName: forUsers,
	jobv1.JobService_ServiceDesc.ServiceName:            forUsers,
}

// Policy decides about calls.
type Policy struct {
	tls     bool
	tokens  *Tokens // nil when there are none
	logger  *slog.Logger
	refused *nodetls.Notices
}

// New returns the policy of a listener that uses TLS or not; tokens are the users' tokens, nil for none.
func New(tls bool, tokens *Tokens, logger *slog.Logger) *Policy {
	return &Policy{tls: tls, tokens: tokens, logger: logger, refused: nodetls.NewNotices()}
}

// Unary is the interceptor for unary calls. Its errors are for grpcerr's interceptor, which comes before it.
func (p *Policy) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := p.check(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// Stream is the interceptor for streams.
func (p *Policy) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := p.check(ss.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(srv, ss)
}

func (p *Policy) check(ctx context.Context, method string) error {
	caller := nodetls.PeerOf(ctx)
	who, err := p.decide(method, caller, bearer(ctx))
	remote := "unknown"
	if pr, ok := peer.FromContext(ctx); ok {
		remote = pr.Addr.String()
	}
	if err == nil {
		if who != "" && changes(method) {
			p.logger.Info("change asked for", "method", method, "by", who, "remote", remote)
		}
		return nil
	}
	host, _, _ := net.SplitHostPort(remote)
	if p.refused.Due(host+" "+err.Error(), time.Now()) {
		p.logger.Warn("call refused", "method", method, "remote", remote, "certificate", caller.Name, "reason", err)
	}
	return err
}

var errUnknownService = errors.New("this service is open to nobody")

// changes reports whether a method may change something that a user answers for.
func changes(method string) bool {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	for _, only := range []string{"Get", "List", "Read", "Explain", "Watch"} {
		if strings.HasPrefix(name, only) {
			return false
		}
	}
	return demands[service] == forUsers
}

// decide returns who the caller is, if that is known, and nil when it may call the method. token is empty for none.
func (p *Policy) decide(method string, caller nodetls.Peer, token string) (who string, err error) {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch demands[service] {
	case forNodes:
		switch {
		case !p.tls, caller.Kind == nodetls.Node:
			return caller.Name, nil
		case caller.Kind == nodetls.User:
			// ErrRefused ends a TaskManager that has never worked, with this text.
			return "", fmt.Errorf("%w: %s is a user's certificate; a TaskManager needs one signed by an authority of tls_ca", grpcerr.ErrRefused, caller.Name)
		}
		return "", fmt.Errorf("%w: a node's certificate is demanded, and none was shown; set tls_cert and tls_key", grpcerr.ErrRefused)
	case forUsers:
		if caller.Kind != nodetls.Unknown || !p.tls && p.tokens == nil {
			return caller.Name, nil
		}
		return p.user(token)
	}
	return "", fmt.Errorf("%w: %s: %w", grpcerr.ErrForbidden, service, errUnknownService)
}

// user returns whose token it is.
func (p *Policy) user(token string) (string, error) {
	switch {
	case p.tokens == nil && token != "":
		return "", fmt.Errorf("%w: a token was given, and this JobManager accepts none; give a client certificate, or set user_tokens_file there", grpcerr.ErrUnauthenticated)
	case p.tokens == nil:
		return "", fmt.Errorf("%w: this JobManager demands a client certificate", grpcerr.ErrUnauthenticated)
	case token == "" && p.tls:
		return "", fmt.Errorf("%w: this JobManager demands a token or a client certificate", grpcerr.ErrUnauthenticated)
	case token == "":
		return "", fmt.Errorf("%w: this JobManager demands a token", grpcerr.ErrUnauthenticated)
	}
	name, ok := p.tokens.User(token)
	if !ok {
		return "", fmt.Errorf("%w: the token given is not one that this JobManager knows", grpcerr.ErrUnauthenticated)
	}
	return name, nil
}

// bearer returns the token of a call.
func bearer(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	v := md.Get("authorization")
	if len(v) != 1 {
		return ""
	}
	scheme, token, ok := strings.Cut(v[0], " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
