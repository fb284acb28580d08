package s3

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-stream/weir/statebackend/blob"
)

// conditionCheck is the object by which a server shows that it does not overwrite. List leaves it out.
const conditionCheck = ".weir-write-once"

// ErrOverwrites is returned when the server does not honour If-None-Match.
var ErrOverwrites = errors.New("the server overwrites objects that it was told not to")

// ready finds out, before the first Put, whether the server honours the condition that the name is free.
func (b *bucket) ready(ctx context.Context) error {
	if !b.conditional {
		return nil
	}
	select {
	case b.checking <- struct{}{}:
		defer func() { <-b.checking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if b.checked {
		return nil
	}
	// The first writer of all makes the object; the second time it must be refused.
	for range 2 {
		err := b.wrap(ctx, "put", conditionCheck, b.write(ctx, conditionCheck, strings.NewReader("Weir keeps this object to see that it cannot be overwritten.\n"), ""))
		switch {
		case errors.Is(err, blob.ErrExists):
			b.checked = true
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && status(err) == 501:
			return b.overwrites()
		case err != nil:
			return err
		}
	}
	return b.overwrites()
}

func (b *bucket) overwrites() error {
	return fmt.Errorf("%s: %w (%s does not honour If-None-Match): take a server that does, "+
		"or add conditional_put=off to the address, which costs a request for each object and leaves a small window for two writers of one name",
		b.shown, ErrOverwrites, b.server)
}
