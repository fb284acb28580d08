package grpcerr

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
)

const domain = "weir"

// Encode returns the status error for err. Errors that are a status already, and nil, pass unchanged; one that is not in the table
// becomes Unknown, or what its context error says.
func Encode(err error) error {
	if err == nil {
		return nil
	}
	for _, row := range table {
		if !errors.Is(err, row.err) {
			continue
		}
		details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: row.reason, Domain: domain}}
		var nl *NotLeaderError
		if errors.As(err, &nl) {
			details = append(details, protoadapt.MessageV1Of(&clusterv1.NotLeader{LeaderId: nl.LeaderID, LeaderAddress: nl.LeaderAddress}))
		}
		st, derr := status.New(row.code, err.Error()).WithDetails(details...)
		if derr != nil {
			return status.Error(row.code, err.Error())
		}
		return st.Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.Unknown, err.Error())
}

// remoteError is an error of the other side. Its text is the other side's, without gRPC's prefix.
type remoteError struct {
	st       *status.Status
	sentinel error
}

func (e *remoteError) Error() string              { return e.st.Message() }
func (e *remoteError) Unwrap() error              { return e.sentinel }
func (e *remoteError) GRPCStatus() *status.Status { return e.st }

// Decode returns the domain error that a status carries; other errors pass unchanged.
func Decode(err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	var reason string
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *clusterv1.NotLeader:
			return &remoteError{st: st, sentinel: &NotLeaderError{LeaderID: d.GetLeaderId(), LeaderAddress: d.GetLeaderAddress()}}
		case *errdetails.ErrorInfo:
			if d.GetDomain() == domain {
				reason = d.GetReason()
			}
		}
	}
	for _, row := range table {
		if row.reason == reason {
			return &remoteError{st: st, sentinel: row.err}
		}
	}
	return err
}

// UnaryServerInterceptor encodes the errors of unary calls.
func UnaryServerInterceptor(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	return resp, Encode(err)
}

// StreamServerInterceptor encodes the errors of streaming calls.
func StreamServerInterceptor(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return Encode(handler(srv, ss))
}

// UnaryClientInterceptor decodes the errors of unary calls.
func UnaryClientInterceptor(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return Decode(invoker(ctx, method, req, reply, cc, opts...))
}
