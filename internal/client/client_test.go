package client_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/client"
	"github.com/weir-stream/weir/internal/grpcerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// jobManager is a fake JobManager whose answer to each call is decided by answer.
type jobManager struct {
	jobv1.UnimplementedJobServiceServer
	clusterv1.UnimplementedMembershipServiceServer
	frozen  chan struct{} // while it is not closed no question whether it is there is answered; nil for always
	address string
	calls   atomic.Int32

	mu       sync.Mutex
	answer   func(call int) error
	uploaded []byte
}

func (j *jobManager) err() error {
	j.mu.Lock()
	answer := j.answer
	j.mu.Unlock()
	n := int(j.calls.Add(1))
	if answer == nil {
		return nil
	}
	return grpcerr.Encode(answer(n))
}

func (j *jobManager) SubmitJob(context.Context, *jobv1.SubmitJobRequest) (*jobv1.SubmitJobResponse, error) {
	return &jobv1.SubmitJobResponse{JobId: j.address}, j.err()
}

func (j *jobManager) UploadArtifact(st grpc.ClientStreamingServer[jobv1.UploadArtifactRequest, jobv1.UploadArtifactResponse]) error {
	if err := j.err(); err != nil {
		return err
	}
	var content []byte
	for {
		m, err := st.Recv()
		if err == io.EOF { //nolint:errorlint // what Recv documents
			break
		}
		if err != nil {
			return err
		}
		content = append(content, m.GetChunk()...)
	}
	j.mu.Lock()
	j.uploaded = content
	j.mu.Unlock()
	return st.SendAndClose(&jobv1.UploadArtifactResponse{})
}

func (j *jobManager) GetInfo(ctx context.Context, _ *clusterv1.GetInfoRequest) (*clusterv1.GetInfoResponse, error) {
	if j.frozen != nil {
		select {
		case <-j.frozen:
		case <-ctx.Done():
		}
	}
	return &clusterv1.GetInfoResponse{}, nil
}

func serve(t *testing.T, answer func(call int) error) *jobManager {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	j := &jobManager{address: l.Addr().String(), answer: answer}
	server := grpc.NewServer()
	jobv1.RegisterJobServiceServer(server, j)
	clusterv1.RegisterMembershipServiceServer(server, j)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		served.Wait()
	})
	return j
}

func deadAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func newClient(t *testing.T, addresses ...string) *client.Client {
	c := client.New(client.Config{Addresses: addresses, Patience: 700 * time.Millisecond, Pause: 10 * time.Millisecond})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func submit(ctx context.Context, c *client.Client) (answered string, err error) {
	err = c.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		r, err := jobv1.NewJobServiceClient(conn).SubmitJob(ctx, &jobv1.SubmitJobRequest{})
		answered = r.GetJobId()
		return err
	})
	return answered, err
}

func TestFindsTheLeader(t *testing.T) {
	leader := serve(t, nil)
	follower := serve(t, func(int) error { return &grpcerr.NotLeaderError{LeaderID: "x", LeaderAddress: leader.address} })
	c := newClient(t, deadAddress(t), follower.address)
	for range 3 {
		got, err := submit(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, leader.address, got)
	}
	require.EqualValues(t, 1, follower.calls.Load(), "the leader is remembered")
}

func TestWaitsForAnElection(t *testing.T) {
	j := serve(t, func(call int) error {
		if call < 5 {
			return &grpcerr.NotLeaderError{}
		}
		return nil
	})
	_, err := submit(t.Context(), newClient(t, j.address))
	require.NoError(t, err)
}

func TestGivesUpWithoutALeader(t *testing.T) {
	j := serve(t, func(int) error { return &grpcerr.NotLeaderError{LeaderID: "gone", LeaderAddress: deadAddress(t)} })
	_, err := submit(t.Context(), newClient(t, j.address))
	require.ErrorContains(t, err, "no leading JobManager")
	require.ErrorContains(t, err, j.address)
	var unknown *client.UnknownOutcomeError
	require.NotErrorAs(t, err, &unknown, "nothing was sent to a leader")
}

func TestRefusalsAreNotRepeated(t *testing.T) {
	j := serve(t, func(int) error { return grpcerr.ErrNameTaken })
	_, err := submit(t.Context(), newClient(t, j.address))
	require.ErrorIs(t, err, grpcerr.ErrNameTaken)
	require.EqualValues(t, 1, j.calls.Load())
}

func TestUnknownOutcomeIsRepeatedAndThenSaid(t *testing.T) {
	for _, lost := range []error{grpcerr.ErrUnknownOutcome, status.Error(codes.Unavailable, "connection reset")} {
		j := serve(t, func(call int) error {
			if call == 1 {
				return lost
			}
			return nil
		})
		_, err := submit(t.Context(), newClient(t, j.address))
		require.NoError(t, err)

		j = serve(t, func(int) error { return lost })
		_, err = submit(t.Context(), newClient(t, j.address))
		var unknown *client.UnknownOutcomeError
		require.ErrorAs(t, err, &unknown)
		require.Greater(t, j.calls.Load(), int32(2))
	}
}

func TestNoAnswerIsAnUnknownOutcome(t *testing.T) {
	short := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 100*time.Millisecond)
	}
	var stop context.CancelFunc
	for name, test := range map[string]struct {
		limit  func(context.Context) (context.Context, context.CancelFunc)
		answer func() error // nil for none
		is     error
	}{
		"interrupted":                         {context.WithCancel, nil, context.Canceled},
		"out of time":                         {short, nil, context.DeadlineExceeded},
		"out of time by the leader's clock":   {context.WithCancel, func() error { return status.Error(codes.DeadlineExceeded, "late") }, context.DeadlineExceeded},
		"interrupted, and the connection too": {context.WithCancel, func() error { stop(); return status.Error(codes.Unavailable, "EOF") }, context.Canceled},
		"a leader that stops":                 {context.WithCancel, func() error { return status.Error(codes.Canceled, "stopping") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := test.limit(t.Context())
			defer cancel()
			stop = cancel
			done := make(chan struct{})
			j := serve(t, func(int) error {
				if test.answer != nil {
					return test.answer()
				}
				if name == "interrupted" {
					cancel()
				}
				<-done
				return nil
			})
			_, err := submit(ctx, newClient(t, j.address))
			close(done)
			var unknown *client.UnknownOutcomeError
			require.ErrorAs(t, err, &unknown)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			require.NotContains(t, err.Error(), "rpc error")
		})
	}
}

func TestInterruptedWhileThereIsNoLeader(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := newClient(t, serve(t, nil).address).Do(ctx, func(context.Context, grpc.ClientConnInterface) error {
		cancel() // the answer is here already: no request is under way
		return &grpcerr.NotLeaderError{}
	})
	require.Equal(t, context.Canceled, err, "no leader got the request")
}

func TestAskingHasNoUnknownOutcome(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	j := serve(t, func(int) error { cancel(); <-done; return nil })
	err := newClient(t, j.address).Ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := jobv1.NewJobServiceClient(conn).SubmitJob(ctx, &jobv1.SubmitJobRequest{})
		return err
	})
	close(done)
	require.Equal(t, context.Canceled, err)
}

func TestEachJobManagerIsListedWithWhatItSaid(t *testing.T) {
	alive, down := serve(t, func(int) error { return &grpcerr.NotLeaderError{} }), deadAddress(t)
	gone := deadAddress(t)
	misled := serve(t, func(int) error { return &grpcerr.NotLeaderError{LeaderID: "jm9", LeaderAddress: gone} })
	_, err := submit(t.Context(), newClient(t, alive.address, down, misled.address))
	require.EqualError(t, err, "no leading JobManager was found within 700ms: asked "+
		alive.address+" (this JobManager does not lead, and no leader is known at the moment), "+
		down+" (cannot connect), "+
		misled.address+" (this JobManager does not lead; the leader is jm9 at "+gone+"), "+
		gone+" (cannot connect)")
	require.ErrorIs(t, err, grpcerr.ErrNotLeader)
}

func TestUnknownHost(t *testing.T) {
	// Two dots in a row are no name for the resolver, so that the test asks no name server.
	_, err := submit(t.Context(), newClient(t, "no..such:6123"))
	require.EqualError(t, err, "no leading JobManager was found within 700ms: asked no..such:6123 (no host is named no..such)")
}

func TestUpload(t *testing.T) {
	j := serve(t, func(call int) error {
		if call == 1 {
			return status.Error(codes.Unavailable, "election")
		}
		return nil
	})
	content := bytes.Repeat([]byte("0123456789"), 200_000)
	require.NoError(t, newClient(t, j.address).Upload(t.Context(), bytes.NewReader(content), "hash", int64(len(content))))
	require.True(t, bytes.Equal(content, j.uploaded), "whole, from its beginning, after the first try failed")
}

func TestALeaderThatFreezesInARequestIsLeft(t *testing.T) {
	next := serve(t, nil)
	thaw := make(chan struct{})
	frozen := serve(t, func(int) error { <-thaw; return nil })
	frozen.frozen = thaw
	c := client.New(client.Config{Addresses: []string{frozen.address, next.address}, Patience: time.Second, Probe: 20 * time.Millisecond})
	defer c.Close()
	got, err := submit(t.Context(), c)
	close(thaw)
	require.NoError(t, err)
	require.Equal(t, next.address, got)
}

func TestALeaderThatTakesItsTimeIsNotLeft(t *testing.T) {
	slow := serve(t, func(int) error { time.Sleep(200 * time.Millisecond); return nil })
	c := client.New(client.Config{Addresses: []string{slow.address}, Patience: time.Second, Probe: 20 * time.Millisecond})
	defer c.Close()
	_, err := submit(t.Context(), c)
	require.NoError(t, err)
	require.EqualValues(t, 1, slow.calls.Load(), "asked once")
}
