package grpcerr_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-stream/weir/internal/grpcerr"
)

// overWire is what a client sees of a server's error.
func overWire(err error) error {
	return grpcerr.Decode(status.FromProto(status.Convert(grpcerr.Encode(err)).Proto()).Err())
}

func TestErrorsKeepTheirIdentityAcrossTheWire(t *testing.T) {
	for err, code := range map[error]codes.Code{
		grpcerr.ErrUnknownOutcome:   codes.Unavailable,
		grpcerr.ErrInvalid:          codes.InvalidArgument,
		grpcerr.ErrJobNotFound:      codes.NotFound,
		grpcerr.ErrNameTaken:        codes.AlreadyExists,
		grpcerr.ErrJobEnded:         codes.FailedPrecondition,
		grpcerr.ErrSavepointFailed:  codes.Aborted,
		grpcerr.ErrArtifactNotFound: codes.NotFound,
		grpcerr.ErrNoTaskManager:    codes.FailedPrecondition,
		grpcerr.ErrRefused:          codes.PermissionDenied,
	} {
		got := overWire(fmt.Errorf("job %q: %w", "totals", err))
		require.ErrorIs(t, got, err)
		require.Equal(t, code, status.Code(got))
		require.Equal(t, fmt.Sprintf("job %q: %v", "totals", err), got.Error())
	}
	require.NotErrorIs(t, overWire(grpcerr.ErrJobNotFound), grpcerr.ErrArtifactNotFound)
}

func TestNotLeaderCarriesTheLeader(t *testing.T) {
	got := overWire(&grpcerr.NotLeaderError{LeaderID: "jm2", LeaderAddress: "10.0.0.2:7070"})
	require.ErrorIs(t, got, grpcerr.ErrNotLeader)
	require.Equal(t, codes.FailedPrecondition, status.Code(got))
	var nl *grpcerr.NotLeaderError
	require.ErrorAs(t, got, &nl)
	require.Equal(t, "10.0.0.2:7070", nl.LeaderAddress)
}

func TestOtherErrorsPass(t *testing.T) {
	require.NoError(t, grpcerr.Encode(nil))
	require.NoError(t, grpcerr.Decode(nil))
	require.Equal(t, codes.Unknown, status.Code(grpcerr.Encode(errors.New("odd"))))
	require.Equal(t, codes.Canceled, status.Code(grpcerr.Encode(context.Canceled)))
	st := status.Error(codes.Unavailable, "connection refused")
	require.Equal(t, st, grpcerr.Decode(st))
}
