package exchange

import (
	"encoding/binary"
	"fmt"

	"github.com/weir-stream/weir/taskmanager/worker/barrier"
)

const (
	dataHeader = 1 + 4
	partHeader = 1 + 8
	// maxMessage is the largest message on a stream; longer frames go in parts.
	maxMessage = 1 << 20

	flagFull = 1
	flagStop = 2
)

func appendBarrier(dst []byte, b barrier.Barrier) []byte {
	var flags byte
	if b.Full {
		flags |= flagFull
	}
	if b.Stop {
		flags |= flagStop
	}
	dst = binary.BigEndian.AppendUint64(append(dst, byte(Barrier)), b.Checkpoint)
	return append(dst, flags)
}

func appendWatermark(dst []byte, wm int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, byte(Watermark)), uint64(wm))
}

// decodeFrame decodes a whole frame. Encoded aliases frame.
func decodeFrame(frame []byte) (Element, error) {
	if len(frame) == 0 {
		return Element{}, fmt.Errorf("empty frame")
	}
	kind, rest := Kind(frame[0]), frame[1:]
	malformed := func() (Element, error) {
		return Element{}, fmt.Errorf("malformed frame of kind %d with %d bytes", kind, len(frame))
	}
	switch kind {
	case Data:
		if len(rest) < 4 {
			return malformed()
		}
		return Element{Kind: Data, Records: int(binary.BigEndian.Uint32(rest)), Encoded: rest[4:]}, nil
	case Barrier:
		if len(rest) != 9 || rest[8] > flagFull|flagStop {
			return malformed()
		}
		return Element{Kind: Barrier, Barrier: barrier.Barrier{
			Checkpoint: binary.BigEndian.Uint64(rest), Full: rest[8]&flagFull != 0, Stop: rest[8]&flagStop != 0,
		}}, nil
	case Watermark:
		if len(rest) != 8 {
			return malformed()
		}
		return Element{Kind: Watermark, Watermark: int64(binary.BigEndian.Uint64(rest))}, nil
	case Idle, Active, End:
		if len(rest) != 0 {
			return malformed()
		}
		return Element{Kind: kind}, nil
	}
	return Element{}, fmt.Errorf("frame of unknown kind %d", kind)
}

// assembler puts frames together that came in parts.
type assembler struct {
	frame []byte
	total int
}

// add takes a message of kind part and returns the frame when it is whole.
func (a *assembler) add(message []byte) (frame []byte, err error) {
	if len(message) <= partHeader {
		return nil, fmt.Errorf("part of %d bytes is too short", len(message))
	}
	total, piece := binary.BigEndian.Uint64(message[1:]), message[partHeader:]
	if a.frame == nil {
		if total > MaxFrame {
			return nil, fmt.Errorf("frame of %d bytes is over the limit of %d", total, MaxFrame)
		}
		a.total = int(total)
	}
	if int(total) != a.total || len(a.frame)+len(piece) > a.total {
		return nil, fmt.Errorf("parts of a frame do not fit together")
	}
	a.frame = append(a.frame, piece...)
	if len(a.frame) < a.total {
		return nil, nil
	}
	frame, a.frame = a.frame, nil
	return frame, nil
}
