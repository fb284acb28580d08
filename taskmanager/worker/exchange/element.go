package exchange

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/barrier"
)

// MaxFrame is the largest frame, in bytes: a batch whose last record is as large as can be, with what is around it.
const MaxFrame = operator.MaxEncodedBytes + operator.MaxRecordBytes + 1<<10

var (
	// ErrClosed is returned by a sender that was closed.
	ErrClosed = errors.New("channel is closed")
	// ErrRefused is wrapped by the error of a producer that the consumer's worker refused.
	ErrRefused = errors.New("connection refused by the consumer's worker")
)

// ID names a channel.
type ID struct {
	// Edge is the vertex edge's id.
	Edge string
	// Producer and Consumer are subtask numbers.
	Producer, Consumer int
}

// String returns the id for messages.
func (id ID) String() string { return fmt.Sprintf("%s[%d→%d]", id.Edge, id.Producer, id.Consumer) }

// PeerError is the loss of a channel to another worker.
type PeerError struct {
	Channel ID
	// Peer is the address of the other worker.
	Peer string
	Err  error
}

// Error implements error.
func (e *PeerError) Error() string {
	return fmt.Sprintf("channel %s: worker at %s: %s", e.Channel, e.Peer, words(e.Err))
}

// FailureClass keeps the end of another worker, which shows as an error of the network, from being taken for the silence of a system
// outside of Weir.
func (e *PeerError) FailureClass() operator.Class { return operator.ClassRestart }

// words is an error's text without gRPC's wording of how a stream ended.
func words(err error) string {
	text := err.Error()
	var s interface {
		error
		GRPCStatus() *status.Status
	}
	if !errors.As(err, &s) {
		return text
	}
	said := s.GRPCStatus().Message()
	switch s.GRPCStatus().Code() {
	case codes.Canceled:
		said = "it has ended the connection"
	case codes.Unavailable:
		said = "the connection broke (" + said + ")"
	}
	return strings.ReplaceAll(text, s.Error(), said)
}

// Unwrap returns the cause.
func (e *PeerError) Unwrap() error { return e.Err }

// Sender is the producing end of a channel. Everything arrives in the order in which it was sent. Only Send waits.
type Sender interface {
	operator.Channel
	Barrier(b barrier.Barrier) error
	Watermark(wm int64) error
	Idle(idle bool) error
	// End tells that no record follows. Barriers still do.
	End() error
	// Close ends the channel from any goroutine and frees a waiting Send. It is clean when the attempt ended as it should, so that
	// the other side does not take it for a failure; a clean one must not run beside other calls.
	Close(clean bool)
}

// Kind is what an element is.
type Kind uint8

// The kinds, with their numbers on the wire.
const (
	Data      Kind = 1
	Barrier   Kind = 2
	Watermark Kind = 3
	Idle      Kind = 4
	Active    Kind = 5
	End       Kind = 6
	part      Kind = 7
)

// Element is one thing that came on a channel.
type Element struct {
	Kind Kind
	// Batch or Encoded is the content of Data, depending on where the producer is.
	Batch   operator.Batch
	Encoded []byte
	// Records is the number of records of Data.
	Records int
	// Barrier is the content of Barrier.
	Barrier barrier.Barrier
	// Watermark is the content of Watermark.
	Watermark int64

	buf    mem.Buffer
	size   int
	credit creditor
}

func (e *Element) discard() {
	if e.Batch != nil {
		e.Batch.Release()
	}
	e.Done()
}

// creditor takes back what an element counted against its channel's bound.
type creditor interface {
	consumed(size int)
}

// Done tells that the element has been worked off: its memory is reused and its producer may send more. A batch is released by its
// reader.
func (e *Element) Done() {
	if e.buf != nil {
		e.buf.Free()
		e.buf, e.Encoded = nil, nil
	}
	if e.credit != nil {
		e.credit.consumed(e.size)
		e.credit = nil
	}
}
