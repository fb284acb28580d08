package exchange_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/barrier"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// batch is a batch of numbers; each takes size bytes on the wire.
type batch struct {
	values   []uint64
	size     int
	released func()
}

func numbers(from, to uint64) *batch {
	b := &batch{size: 8}
	for v := from; v < to; v++ {
		b.values = append(b.values, v)
	}
	return b
}

func (b *batch) Len() int { return len(b.values) }

func (b *batch) AppendEncoded(dst []byte, from int) ([]byte, int, error) {
	for from < len(b.values) && len(dst) < operator.MaxEncodedBytes {
		dst = binary.BigEndian.AppendUint64(dst, b.values[from])
		dst = append(dst, make([]byte, b.size-8)...)
		from++
	}
	return dst, from, nil
}

func (b *batch) Release() {
	if b.released != nil {
		b.released()
	}
}

var attempt = exchange.Attempt{Job: "job", Attempt: 3, Token: "secret"}

// link is a channel with both of its ends.
type link struct {
	sender exchange.Sender
	inbox  *exchange.Inbox
	failed chan error
}

// next waits for the next element.
func (l *link) next(t *testing.T) exchange.Element {
	t.Helper()
	deadline := time.After(patience)
	for {
		if _, e, ok := l.inbox.Poll(); ok {
			return e
		}
		select {
		case <-l.inbox.Wake():
		case <-deadline:
			require.Fail(t, "nothing came")
		}
	}
}

func values(e exchange.Element, size int) []uint64 {
	if e.Batch != nil {
		return e.Batch.(*batch).values
	}
	var vs []uint64
	for data := e.Encoded; len(data) > 0; data = data[size:] {
		vs = append(vs, binary.BigEndian.Uint64(data))
	}
	return vs
}

func localLink(t *testing.T) *link {
	in := exchange.NewInbox(1)
	l := &link{sender: exchange.NewLocal(in, 0), inbox: in, failed: make(chan error, 2)}
	t.Cleanup(func() { l.sender.Close(false) })
	return l
}

func listen(t *testing.T, attempt exchange.Attempt) *exchange.Server {
	s, err := exchange.Listen("127.0.0.1", exchange.Ports{}, attempt)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(false) })
	return s
}

func address(s *exchange.Server) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())) }

func remoteLink(t *testing.T) *link {
	l, _, _ := remoteEnds(t, attempt)
	return l
}

func encryptedLink(t *testing.T) *link {
	l, _, _ := remoteEnds(t, encrypted)
	return l
}

func remoteEnds(t *testing.T, attempt exchange.Attempt) (*link, *exchange.Server, *exchange.Dialer) {
	in := exchange.NewInbox(1)
	l := &link{inbox: in, failed: make(chan error, 2)}
	id := exchange.ID{Edge: "a→b", Producer: 1, Consumer: 2}
	s := listen(t, attempt)
	s.Register(id, in, 0, func(err error) { l.failed <- err })
	d := exchange.NewDialer(attempt)
	t.Cleanup(d.Close)
	r := exchange.NewRemote(id, func(err error) { l.failed <- err })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, d.Connect(ctx, address(s), r))
	l.sender = r
	return l, s, d
}

// TestChannel holds what both kinds of channel promise.
func TestChannel(t *testing.T) {
	for _, kind := range []struct {
		name string
		link func(*testing.T) *link
	}{{"local", localLink}, {"remote", remoteLink}, {"encrypted", encryptedLink}} {
		t.Run(kind.name, func(t *testing.T) {
			t.Run("keeps the order", func(t *testing.T) { testOrder(t, kind.link(t)) })
			t.Run("bounds what is on its way", func(t *testing.T) { testBound(t, kind.link(t)) })
			t.Run("takes a batch larger than the bound", func(t *testing.T) { testOversized(t, kind.link(t)) })
			t.Run("close frees a waiting producer", func(t *testing.T) { testClose(t, kind.link(t)) })
		})
	}
}

func testOrder(t *testing.T, l *link) {
	b := barrier.Barrier{Checkpoint: 7, Full: true, Stop: true}
	require.NoError(t, l.sender.Send(numbers(0, 40)))
	require.NoError(t, l.sender.Watermark(-5))
	require.NoError(t, l.sender.Idle(true))
	require.NoError(t, l.sender.Idle(false))
	require.NoError(t, l.sender.Barrier(b))
	require.NoError(t, l.sender.Send(numbers(40, 41)))
	require.NoError(t, l.sender.End())

	e := l.next(t)
	require.Equal(t, exchange.Data, e.Kind)
	require.Equal(t, 40, e.Records)
	require.Equal(t, numbers(0, 40).values, values(e, 8))
	e.Done()
	e = l.next(t)
	require.Equal(t, exchange.Watermark, e.Kind)
	require.Equal(t, int64(-5), e.Watermark)
	require.Equal(t, exchange.Idle, l.next(t).Kind)
	require.Equal(t, exchange.Active, l.next(t).Kind)
	e = l.next(t)
	require.Equal(t, exchange.Barrier, e.Kind)
	require.Equal(t, b, e.Barrier)
	e = l.next(t)
	require.Equal(t, []uint64{40}, values(e, 8))
	e.Done()
	require.Equal(t, exchange.End, l.next(t).Kind)
}

// testBound sends from another goroutine until it waits, and checks that no more was on its way than the bound for a consumer that
// has worked off nothing, that a barrier gets through, and that working off lets the producer go on.
func testBound(t *testing.T, l *link) {
	const batches, perBatch, size = 64, 64, 1024 // 64 KiB a batch
	sent := make(chan int)
	done := make(chan error, 1)
	go func() {
		for i := range uint64(batches) {
			b := numbers(i*perBatch, (i+1)*perBatch)
			b.size = size
			if err := l.sender.Send(b); err != nil {
				done <- err
				return
			}
			sent <- int(i)
		}
		done <- nil
	}()
	accepted := 0
	for waiting := false; !waiting; {
		select {
		case <-sent:
			accepted++
		case <-time.After(200 * time.Millisecond):
			waiting = true
		}
	}
	require.Positive(t, accepted)
	require.LessOrEqual(t, accepted, 2, "64 records or 64 KiB before anything is worked off")

	var got uint64
	for range batches {
		e := l.next(t)
		for _, v := range values(e, size) {
			require.Equal(t, got, v)
			got++
		}
		e.Done()
		for drained := false; !drained; {
			select {
			case <-sent:
			default:
				drained = true
			}
		}
		if got == batches*perBatch {
			break
		}
		// The producer hands its progress over before it sends the next batch.
		select {
		case <-sent:
		case err := <-done:
			require.NoError(t, err)
			done <- nil
		case <-time.After(10 * time.Millisecond):
		}
	}
	for {
		select {
		case <-sent:
			continue
		case err := <-done:
			require.NoError(t, err)
			return
		case <-time.After(patience):
			require.Fail(t, "the producer is still waiting")
		}
	}
}

// testOversized sends records of which each is more than a channel's bound.
func testOversized(t *testing.T, l *link) {
	b := numbers(0, 3)
	b.size = operator.MaxRecordBytes
	done := make(chan error, 1)
	go func() { done <- l.sender.Send(b) }()
	var got []uint64
	for len(got) < 3 {
		e := l.next(t)
		got = append(got, values(e, b.size)...)
		e.Done()
	}
	require.Equal(t, []uint64{0, 1, 2}, got)
	require.NoError(t, <-done)
	require.NoError(t, l.sender.Send(numbers(3, 4)))
	e := l.next(t)
	require.Equal(t, []uint64{3}, values(e, 8))
	e.Done()
}

func testClose(t *testing.T, l *link) {
	b := numbers(0, 512)
	b.size = 1024
	require.NoError(t, l.sender.Send(b))
	done := make(chan error, 1)
	go func() {
		b := numbers(0, 512)
		b.size = 1024
		done <- l.sender.Send(b)
	}()
	l.sender.Close(false)
	select {
	case err := <-done:
		require.ErrorIs(t, err, exchange.ErrClosed)
	case <-time.After(patience):
		require.Fail(t, "Send is still waiting")
	}
}

func TestConnectRefused(t *testing.T) {
	s := listen(t, attempt)
	id := exchange.ID{Edge: "e", Producer: 0, Consumer: 0}
	s.Register(id, exchange.NewInbox(1), 0, func(error) {})
	for _, tc := range []struct {
		name    string
		attempt exchange.Attempt
		id      exchange.ID
		says    string
	}{
		{"wrong token", exchange.Attempt{Job: "job", Attempt: 3, Token: "guess"}, id, "wrong token"},
		{"former attempt", exchange.Attempt{Job: "job", Attempt: 2, Token: "secret"}, id, "not to attempt 2"},
		{"another job", exchange.Attempt{Job: "other", Attempt: 3, Token: "secret"}, id, "not to attempt 3 of job other"},
		{"unknown channel", attempt, exchange.ID{Edge: "e", Producer: 1}, "does not end in this worker"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := exchange.NewDialer(tc.attempt)
			defer d.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := d.Connect(ctx, address(s), exchange.NewRemote(tc.id, func(error) {}))
			require.ErrorIs(t, err, exchange.ErrRefused)
			require.ErrorContains(t, err, tc.says)
			require.ErrorContains(t, err, address(s))
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestSecondConnectionRefused(t *testing.T) {
	_, s, d := remoteEnds(t, attempt)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again := exchange.NewRemote(exchange.ID{Edge: "a→b", Producer: 1, Consumer: 2}, func(error) {})
	require.ErrorIs(t, d.Connect(ctx, address(s), again), exchange.ErrRefused)
}

func TestConnectWaitsUntilDeadline(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := lis.Addr().String()
	require.NoError(t, lis.Close())
	d := exchange.NewDialer(attempt)
	defer d.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = d.Connect(ctx, addr, exchange.NewRemote(exchange.ID{Edge: "e"}, func(error) {}))
	var pe *exchange.PeerError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, addr, pe.Peer)
	require.Equal(t, operator.ClassRestart, operator.ClassOf(err), "another worker is no outside system")
	require.NotContains(t, err.Error(), "rpc error")
}

func failure(t *testing.T, l *link) error {
	select {
	case err := <-l.failed:
		return err
	case <-time.After(patience):
		require.Fail(t, "no failure reported")
		return nil
	}
}

func TestConsumerLost(t *testing.T) {
	l, s, _ := remoteEnds(t, attempt)
	addr := address(s)
	s.Close(false)
	err := failure(t, l)
	var pe *exchange.PeerError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, addr, pe.Peer)
	require.NotContains(t, err.Error(), "rpc error")
	require.Error(t, l.sender.Send(numbers(0, 1)))
}

func TestProducerLost(t *testing.T) {
	l, _, d := remoteEnds(t, attempt)
	d.Close()
	err := failure(t, l)
	var pe *exchange.PeerError
	require.ErrorAs(t, err, &pe)
	require.Contains(t, pe.Peer, "127.0.0.1:")
	require.ErrorContains(t, err, pe.Peer+": it has ended the connection")
}

func TestCleanEndIsNoFailure(t *testing.T) {
	t.Run("producer first", func(t *testing.T) {
		l, s, d := remoteEnds(t, attempt)
		require.NoError(t, l.sender.Send(numbers(0, 10)))
		l.sender.Close(true)
		d.Close()
		e := l.next(t)
		require.Equal(t, numbers(0, 10).values, values(e, 8), "what was sent before arrives")
		s.Close(true)
		require.Empty(t, l.failed)
	})
	t.Run("consumer first", func(t *testing.T) {
		l, s, d := remoteEnds(t, attempt)
		s.Close(true)
		// What is still sent is of no use to anybody and no failure either.
		for range 100 {
			b := numbers(0, 512)
			b.size = 1024
			require.NoError(t, l.sender.Send(b))
		}
		l.sender.Close(true)
		d.Close()
		require.Empty(t, l.failed)
	})
}

func TestEncodeErrorIsReturned(t *testing.T) {
	l := remoteLink(t)
	bad := errors.New("bad value")
	require.ErrorIs(t, l.sender.Send(failing{bad}), bad)
}

type failing struct{ err error }

func (failing) Len() int                                         { return 1 }
func (f failing) AppendEncoded([]byte, int) ([]byte, int, error) { return nil, 0, f.err }
func (failing) Release()                                         {}
