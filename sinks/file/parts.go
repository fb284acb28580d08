package filesink

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-stream/weir/operator"
)

// bufferSize is what is gathered before a file is written to.
const bufferSize = 64 << 10

// parts are the files of one transaction: some open, at most one per partition, the others sealed.
type parts[T any] struct {
	settings  *settings
	format    Format[T]
	partition func(T, time.Time) string // nil for one partition
	store     Store
	writer    writer
	now       func() time.Time

	sequence uint64
	next     int // number of the next file
	open     map[string]*part[T]
	writes   uint64
	sealed   []file
}

// part is one open file.
type part[T any] struct {
	file
	out     File
	buffer  *bufio.Writer
	size    int64
	encoder Encoder[T]
	opened  time.Time
	used    uint64 // number of the write that used it last
}

// Write implements io.Writer for the encoder.
func (p *part[T]) Write(b []byte) (int, error) {
	n, err := p.buffer.Write(b)
	p.size += int64(n)
	return n, err
}

// begin starts the next transaction.
func (p *parts[T]) begin() {
	p.sequence++
	p.next, p.sealed = 0, nil
	p.open = map[string]*part[T]{}
}

// write adds a record. Files that it starts live under ctx.
func (p *parts[T]) write(ctx context.Context, v T, timestamp int64) error {
	partition := ""
	if p.partition != nil {
		var at time.Time
		if timestamp != operator.NoTimestamp {
			at = time.UnixMilli(timestamp).UTC()
		}
		partition = p.partition(v, at)
	}
	f := p.open[partition]
	if f != nil && p.settings.maxAge > 0 && p.now().Sub(f.opened) >= p.settings.maxAge {
		if err := p.seal(ctx, partition); err != nil {
			return err
		}
		f = nil
	}
	if f == nil {
		var err error
		if f, err = p.start(ctx, partition); err != nil {
			return err
		}
	}
	p.writes++
	f.used = p.writes
	if err := f.encoder.Encode(v); err != nil {
		return fmt.Errorf("file %s: %w", f.Pending, err)
	}
	f.Records++
	if f.size >= p.settings.maxBytes {
		return p.seal(ctx, partition)
	}
	return nil
}

func (p *parts[T]) start(ctx context.Context, partition string) (*part[T], error) {
	if err := checkPartition(partition); err != nil {
		return nil, err
	}
	if len(p.open) >= p.settings.maxOpen {
		oldest, found := "", false
		for name, f := range p.open {
			if !found || f.used < p.open[oldest].used {
				oldest, found = name, true
			}
		}
		if err := p.seal(ctx, oldest); err != nil {
			return nil, err
		}
	}
	f := &part[T]{
		file: file{
			Pending: p.writer.pendingName(p.sequence, p.next),
			Final:   p.writer.finalName(partition, p.sequence, p.next, p.format.Extension()),
		},
		opened: p.now(),
	}
	p.next++
	var err error
	if f.out, err = p.store.Create(ctx, f.Pending); err != nil {
		return nil, fmt.Errorf("create file %s: %w", f.Pending, err)
	}
	f.buffer = bufio.NewWriterSize(f.out, bufferSize)
	if f.encoder, err = p.format.NewEncoder(f); err != nil {
		return nil, errors.Join(fmt.Errorf("begin file %s: %w", f.Pending, err), f.out.Discard())
	}
	p.open[partition] = f
	return f, nil
}

// seal ends a file: it is durable, under its pending name.
func (p *parts[T]) seal(ctx context.Context, partition string) error {
	f := p.open[partition]
	err := f.encoder.Close()
	if err == nil {
		err = f.buffer.Flush()
	}
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.settings.deadline)
		err = f.out.Seal(ctx)
		cancel()
	}
	if err != nil {
		return fmt.Errorf("end file %s: %w", f.Pending, err)
	}
	delete(p.open, partition)
	p.sealed = append(p.sealed, f.file)
	return nil
}

// sealAll ends every file and returns those of the transaction.
func (p *parts[T]) sealAll(ctx context.Context) ([]file, error) {
	for partition := range p.open {
		if err := p.seal(ctx, partition); err != nil {
			return nil, err
		}
	}
	return p.sealed, nil
}

// discard removes every file of the transaction.
func (p *parts[T]) discard(ctx context.Context) error {
	var errs []error
	for _, f := range p.open {
		errs = append(errs, f.out.Discard())
	}
	for _, f := range p.sealed {
		errs = append(errs, p.store.Remove(ctx, f.Pending))
	}
	p.open, p.sealed = nil, nil
	return errors.Join(errs...)
}
