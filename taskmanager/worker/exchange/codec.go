package exchange

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/mem"
)

// codecName is the content-subtype of the data plane.
const codecName = "weir-raw"

// rawCodec passes bytes through: a mem.BufferSlice out, a *received in.
type rawCodec struct{ pool *framePool }

// received is a message as it came; its buffer belongs to the receiver.
type received struct{ buf mem.Buffer }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	out, ok := v.(mem.BufferSlice)
	if !ok {
		return nil, fmt.Errorf("exchange codec: unexpected %T", v)
	}
	return out, nil
}

func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*received)
	if !ok {
		return fmt.Errorf("exchange codec: unexpected %T", v)
	}
	in.buf = data.MaterializeToBuffer(c.pool)
	return nil
}

func (rawCodec) Name() string { return codecName }

// framePool keeps the buffers of frames. Very large ones are left to the garbage collector.
type framePool struct{ pool sync.Pool }

const largestPooled = 2 << 20

func (p *framePool) Get(length int) *[]byte {
	b, _ := p.pool.Get().(*[]byte)
	if b == nil {
		b = new([]byte)
	}
	if cap(*b) < length {
		*b = make([]byte, length)
	}
	*b = (*b)[:length]
	return b
}

func (p *framePool) Put(b *[]byte) {
	if cap(*b) <= largestPooled {
		p.pool.Put(b)
	}
}
