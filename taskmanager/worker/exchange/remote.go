package exchange

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/barrier"
)

// Bounds of a remote channel in bytes. The lower one keeps a channel busy over a network with some delay.
const (
	remoteLowest  = 64 << 10
	remoteHighest = 64 << 20
)

// Remote is the producing end of a channel to another worker. It is connected by a [Dialer] before anything is sent.
type Remote struct {
	id   ID
	fail func(error)
	pool *framePool

	// Set by attach, before anything is sent.
	peer   string
	stream grpc.ClientStream
	cancel context.CancelFunc
	freed  chan struct{}
	closed chan struct{}
	// gone is closed when the consumer ended the channel in an orderly way; what is sent afterwards is of no use to anybody.
	gone chan struct{}
	blocked

	mu          sync.Mutex
	window      window
	recordBytes int // of a record of late, on the average
	isClosed    bool
}

var _ Sender = (*Remote)(nil)

// NewRemote returns a sender that is not connected yet. fail is called, from any goroutine, when the connection is lost.
func NewRemote(id ID, fail func(error)) *Remote {
	return &Remote{
		id: id, fail: fail, pool: &framePool{},
		freed: make(chan struct{}, 1), closed: make(chan struct{}), gone: make(chan struct{}),
		window: newWindow(remoteLowest, remoteHighest),
	}
}

// ID returns the channel's name.
func (r *Remote) ID() ID { return r.id }

// Send encodes and sends a batch, in more than one frame if its records are large.
func (r *Remote) Send(b operator.Batch) error {
	for from, records := 0, b.Len(); from < records; {
		buf := r.pool.Get(dataHeader)
		frame := *buf
		frame[0] = byte(Data)
		frame, to, err := b.AppendEncoded(frame, from)
		if err != nil {
			r.pool.Put(buf)
			return fmt.Errorf("encode for channel %s: %w", r.id, err)
		}
		binary.BigEndian.PutUint32(frame[1:], uint32(to-from))
		if to == records {
			b.Release()
		}
		*buf = frame
		if err := r.await(len(frame), to-from); err != nil {
			if errors.Is(err, errGone) {
				return nil
			}
			return err
		}
		if err := r.write(mem.NewBuffer(buf, r.pool), len(frame)); err != nil {
			return err
		}
		from = to
	}
	return nil
}

var errGone = errors.New("consumer has closed the channel")

// BatchRecords implements operator.Channel.
func (r *Remote) BatchRecords() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(1, r.window.batch()/max(1, r.recordBytes))
}

// await waits until a batch of size bytes may be sent.
func (r *Remote) await(size, records int) error {
	for {
		r.mu.Lock()
		if r.window.fits(size) {
			r.window.send(size, time.Now())
			r.recordBytes = size / max(1, records)
			r.mu.Unlock()
			r.end()
			return nil
		}
		r.mu.Unlock()
		r.begin()
		select {
		case <-r.freed:
		case <-r.gone:
			return errGone
		case <-r.closed:
			return ErrClosed
		}
	}
}

func (r *Remote) write(frame mem.Buffer, size int) error {
	if size <= maxMessage {
		return r.message(mem.BufferSlice{frame})
	}
	defer frame.Free()
	for start := 0; start < size; start += maxMessage {
		header := binary.BigEndian.AppendUint64([]byte{byte(part)}, uint64(size))
		piece := frame.Slice(start, min(start+maxMessage, size))
		if err := r.message(mem.BufferSlice{mem.SliceBuffer(header), piece}); err != nil {
			return err
		}
	}
	return nil
}

func (r *Remote) message(m mem.BufferSlice) error {
	if r.stream == nil {
		return fmt.Errorf("channel %s: not connected", r.id)
	}
	err := r.stream.SendMsg(m)
	if err == nil {
		return nil
	}
	// The reason is known to the receiving side of the stream.
	select {
	case <-r.gone:
		return nil
	case <-r.closed:
		return ErrClosed
	}
}

// Barrier implements Sender.
func (r *Remote) Barrier(b barrier.Barrier) error { return r.control(appendBarrier(nil, b)) }

// Watermark implements Sender.
func (r *Remote) Watermark(wm int64) error { return r.control(appendWatermark(nil, wm)) }

// Idle implements Sender.
func (r *Remote) Idle(idle bool) error {
	if idle {
		return r.control([]byte{byte(Idle)})
	}
	return r.control([]byte{byte(Active)})
}

// End implements Sender.
func (r *Remote) End() error { return r.control([]byte{byte(End)}) }

func (r *Remote) control(frame []byte) error {
	return r.message(mem.BufferSlice{mem.SliceBuffer(frame)})
}

// Close implements Sender. After a clean close, which must not run beside a Send, the consumer sees the end of the stream.
func (r *Remote) Close(clean bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed {
		return
	}
	r.isClosed = true
	close(r.closed)
	switch {
	case r.stream == nil:
	case clean:
		_ = r.stream.CloseSend()
	default:
		r.cancel()
	}
}

// attach takes the connection that a dialer has made, unless the sender was closed meanwhile.
func (r *Remote) attach(peer string, stream grpc.ClientStream, cancel context.CancelFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed {
		return false
	}
	r.peer, r.stream, r.cancel = peer, stream, cancel
	return true
}

// receive reads the counts of what the consumer has worked off until the stream ends.
func (r *Remote) receive() {
	defer r.cancel()
	for {
		var in received
		err := r.stream.RecvMsg(&in)
		if err == nil {
			var n int
			if n, err = decodeCredit(in.buf.ReadOnlyData()); err == nil {
				r.consumed(n)
			}
			in.buf.Free()
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF):
			close(r.gone)
			return
		}
		select {
		case <-r.closed:
		default:
			r.fail(&PeerError{Channel: r.id, Peer: r.peer, Err: err})
			r.Close(false)
		}
		return
	}
}

func (r *Remote) consumed(n int) {
	r.mu.Lock()
	r.window.done(n, time.Now())
	r.mu.Unlock()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

func decodeCredit(data []byte) (int, error) {
	if len(data) != 8 {
		return 0, fmt.Errorf("malformed count of %d bytes", len(data))
	}
	return int(binary.BigEndian.Uint64(data)), nil
}
