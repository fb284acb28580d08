package demo

import (
	"context"
	"fmt"
	"time"
)

const accountEvery = 500 * time.Millisecond

// account prints the live account until ctx ends.
func (d *Demo) account(ctx context.Context) error {
	if d.o.Progress == nil {
		return nil
	}
	ticker := time.NewTicker(accountEvery)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			if d.o.Live {
				fmt.Fprintln(d.o.Progress)
			}
			return nil
		case <-ticker.C:
			if d.o.Live {
				fmt.Fprintf(d.o.Progress, "\r\x1b[K%s", cut(d.line(), d.o.Width-1))
			} else if n%4 == 0 {
				fmt.Fprintln(d.o.Progress, d.line())
			}
		}
	}
}

// line is the account at this moment.
func (d *Demo) line() string {
	v := d.jobs.view()
	d.mu.Lock()
	defer d.mu.Unlock()
	quiet := time.Duration(0)
	if !d.ledger.LastOutput.IsZero() {
		quiet = time.Since(d.ledger.LastOutput).Round(100 * time.Millisecond)
	}
	return fmt.Sprintf("%4.1fs  in %d  out %d  checkpoints %d  kills %d  twice %d  wrong %d  silent %s  %s",
		time.Since(d.began).Seconds(), d.produced.Load(), d.ledger.Committed, v.GetCompletedCheckpoints(), len(d.kills),
		d.ledger.Duplicated, len(d.ledger.Wrong()), quiet, d.note)
}

// cut shortens a line to the width of the terminal, as a wrapped one could not be written over; a width below 1 leaves it whole.
func cut(line string, width int) string {
	if width < 1 || len(line) <= width {
		return line
	}
	return line[:width]
}

func (d *Demo) say(note string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note = note
}

// logf tells of an event on a line of its own.
func (d *Demo) logf(format string, args ...any) {
	if d.o.Progress == nil {
		return
	}
	start := ""
	if d.o.Live {
		start = "\r\x1b[K"
	}
	fmt.Fprintf(d.o.Progress, start+format+"\n", args...)
}
