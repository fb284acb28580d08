// Package committed reads topics as a read_committed consumer sees them: what tests and the demo judge by.
package committed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxWait is how long a broker may keep a fetch that finds nothing, and so how late a record may be seen.
const maxWait = 50 * time.Millisecond

// Follow passes every committed record of the topics, from the first one on and each partition in order, to each, until ctx ends, which is
// no error, or the first error of a partition or of each.
func Follow(ctx context.Context, brokers, topics []string, each func(*kgo.Record) error) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(maxWait),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var errs []error
		fetches.EachError(func(topic string, p int32, err error) {
			errs = append(errs, fmt.Errorf("read %s/%d: %w", topic, p, err))
		})
		fetches.EachRecord(func(r *kgo.Record) {
			if err := each(r); err != nil {
				errs = append(errs, fmt.Errorf("read %s/%d at offset %d: %w", r.Topic, r.Partition, r.Offset, err))
			}
		})
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
}
