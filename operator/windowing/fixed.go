package windowing

import (
	"errors"
	"fmt"
	"time"
)

// ErrWindow is returned for windows that cannot be: the message says why.
var ErrWindow = errors.New("window")

// maxSlices bounds the panes of one sliding window.
const maxSlices = 100_000

// Fixed are windows of one length: tumbling when slide and size are the same, else sliding. Windows start at offset plus multiples
// of slide since the epoch, in UTC.
type Fixed struct {
	size, slide, offset time.Duration
	// In milliseconds. The offset is reduced to [0, slide).
	sizeMs, slideMs, offsetMs, sliceMs int64
}

var _ Assigner = Fixed{}

// NewFixed returns the windows of the given size, slide and offset, which must be whole milliseconds.
func NewFixed(size, slide, offset time.Duration) Fixed {
	f := Fixed{
		size: size, slide: slide, offset: offset,
		sizeMs: size.Milliseconds(), slideMs: slide.Milliseconds(), offsetMs: offset.Milliseconds(),
	}
	if f.sizeMs > 0 && f.slideMs > 0 {
		f.offsetMs -= floor(f.offsetMs, f.slideMs)
		f.sliceMs = gcd(f.sizeMs, f.slideMs)
	}
	return f
}

// WithOffset returns the same windows moved by d.
func (f Fixed) WithOffset(d time.Duration) Fixed { return NewFixed(f.size, f.slide, d) }

// ID implements Assigner.
func (f Fixed) ID() string { return fmt.Sprintf("window/%d/%d/%d", f.sizeMs, f.slideMs, f.offsetMs) }

// Validate implements Assigner.
func (f Fixed) Validate() error {
	var errs []error
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"size", f.size}, {"slide", f.slide}} {
		if d.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%w: the %s %s is below one millisecond", ErrWindow, d.name, d.d))
		}
	}
	for _, d := range []time.Duration{f.size, f.slide, f.offset} {
		if d%time.Millisecond != 0 {
			errs = append(errs, fmt.Errorf("%w: %s is not a whole number of milliseconds", ErrWindow, d))
		}
	}
	if f.slide > f.size {
		errs = append(errs, fmt.Errorf("%w: the slide %s is longer than the size %s, so records between windows would be dropped", ErrWindow, f.slide, f.size))
	}
	if f.sliceMs > 0 && f.sizeMs/f.sliceMs > maxSlices {
		errs = append(errs, fmt.Errorf("%w: size %s and slide %s have so small a common divisor (%d ms) that a window would consist of more than %d slices; choose a slide that divides the size",
			ErrWindow, f.size, f.slide, f.sliceMs, maxSlices))
	}
	return errors.Join(errs...)
}

// Pane implements Assigner.
func (f Fixed) Pane(t int64) Span {
	start := f.offsetMs + floor(t-f.offsetMs, f.sliceMs)
	return Span{start, start + f.sliceMs}
}

// First implements Assigner.
func (f Fixed) First(pane int64) Span {
	// The first start that is above pane - size.
	start := f.offsetMs + floor(pane-f.sizeMs-f.offsetMs, f.slideMs) + f.slideMs
	return Span{start, start + f.sizeMs}
}

// Last implements Assigner.
func (f Fixed) Last(pane int64) Span {
	start := f.offsetMs + floor(pane-f.offsetMs, f.slideMs)
	return Span{start, start + f.sizeMs}
}

// Next implements Assigner.
func (f Fixed) Next(w Span) Span { return Span{w.Start + f.slideMs, w.End + f.slideMs} }

// floor returns the largest multiple of unit that is not above t. Division rounds towards zero, which for negative times is the
// wrong way.
func floor(t, unit int64) int64 {
	m := t % unit
	if m < 0 {
		m += unit
	}
	return t - m
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
