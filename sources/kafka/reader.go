package kafkasource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources"
	"github.com/weir-stream/weir/sources/kafka/internal/fetch"
)

// split is a partition that this subtask reads.
type split struct {
	id splitID
	topicPartition
	// Of Fetch: fetched is the offset after what it returned, from is what it comes from, end the high watermark as of asOf.
	fetched int64
	from    *fetch.Partition
	end     int64
	asOf    time.Time
	// next is the next offset to emit, and epoch that of the leader that wrote what is before it; they belong to the task's goroutine.
	next   int64
	epoch  int32
	number int // of the output, valid once known
	known  bool
}

// reader reads the partitions of one subtask.
type reader[T any] struct {
	settings settings
	decode   func(Record) (T, error)
	rc       sources.ReaderContext
	cl       *kgo.Client
	fetcher  *fetch.Fetcher
	letters  *deadLetters

	// Of the task's goroutine.
	splits []*split
	ends   map[*split]int64

	// Of Fetch.
	assigned map[topicPartition]*split
	fetching map[*fetch.Partition]*split
	first    bool          // the first batch, which only makes the splits known, is still to come
	answer   *fetch.Answer // of which rest is not returned yet
	rest     []fetch.Part
	heard    map[*split]struct{} // since ends were told last
	told     time.Time

	// hold is closed when emitting may begin.
	hold     chan struct{}
	released sync.Once

	watch *watcher
}

var (
	_ sources.Reader[int] = (*reader[int])(nil)
	_ sources.SplitNamer  = (*reader[int])(nil)
)

func (s *source[T]) NewReader(rc sources.ReaderContext) (sources.Reader[T], error) {
	return &reader[T]{
		settings: s.settings, decode: s.decode, rc: rc, first: true,
		assigned: map[topicPartition]*split{}, fetching: map[*fetch.Partition]*split{}, heard: map[*split]struct{}{}, ends: map[*split]int64{},
		hold: make(chan struct{}),
	}, nil
}

// Open meets the cluster, resolves where each owned partition is read from, and starts fetching. It fails where the cluster or a topic
// cannot be had within about ten seconds.
func (r *reader[T]) Open(ctx context.Context, restored []sources.Position, fresh bool) error {
	defer sources.Waiting(r.rc.Counters, r.settings.answer())()
	if err := r.connect(ctx); err != nil {
		return err
	}
	topics, err := kafkaconn.FindTopics(ctx, r.cl, r.settings.deadline, kafkaconn.Read, r.settings.topics...)
	if err != nil {
		return err
	}
	if r.settings.group != "" {
		if err := checkGroup(ctx, r.settings); err != nil {
			return err
		}
	}
	owned := r.owned(topics, nil)
	if err := r.place(ctx, owned, topics, restored, fresh); err != nil {
		return err
	}
	if err := r.checkLost(ctx, owned); err != nil {
		return err
	}
	slices.SortFunc(owned, func(a, b *split) int { return strings.Compare(a.id.key(), b.id.key()) })
	r.splits = owned
	r.fetcher = fetch.New(fetch.Config{
		Client: r.cl, Memory: r.settings.memory / 2, Total: r.settings.fetchBytes, Partition: r.settings.partBytes, Deadline: r.settings.deadline,
		Logger: r.rc.Logger, Now: r.rc.Now,
	})
	for _, s := range owned {
		r.assign(s)
	}
	if !fresh || r.settings.start == startEarliest || !r.rc.Checkpoints.Enabled {
		r.release()
	}
	if r.settings.policy == decodeDeadLetter {
		if r.letters, err = newDeadLetters(ctx, r.settings); err != nil {
			return err
		}
	}
	r.watch = newWatcher(r.cl, r.fetcher, r.settings, r.rc, topics, owned)
	r.watch.start()
	return nil
}

func (r *reader[T]) connect(ctx context.Context) error {
	settings, err := r.settings.client()
	if err != nil {
		return err
	}
	r.settings = settings
	opts := append([]kgo.Opt{
		kgo.SeedBrokers(r.settings.brokers...),
		kgo.BrokerMaxReadBytes(int32(min(max(readBytes, 2*int64(r.settings.fetchBytes)), maxReadBytes))),
	}, r.settings.options...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return operator.Fatal(fmt.Errorf("make a Kafka client: %w", err))
	}
	r.cl = cl
	return kafkaconn.Reach(ctx, cl, r.settings.brokers, r.settings.deadline)
}

// readBytes is the longest answer that is taken, unless requests ask for more than half of it, and maxReadBytes the longest of all.
const (
	readBytes    = 100 << 20
	maxReadBytes = 1 << 30
)

// owned returns the partitions that belong to this subtask and are not in have.
func (r *reader[T]) owned(topics map[string]kafkaconn.Topic, have map[topicPartition]*split) []*split {
	return ownedSplits(topics, r.rc.Subtask, r.rc.Parallelism, func(tp topicPartition) bool { return have[tp] != nil })
}

func ownedSplits(topics map[string]kafkaconn.Topic, subtask, parallelism int, have func(topicPartition) bool) []*split {
	var out []*split
	for _, t := range topics {
		for p := range int32(t.Partitions) {
			id := splitID{t.ID, p}
			tp := topicPartition{t.Name, p}
			if id.owner(parallelism) == subtask && !have(tp) {
				out = append(out, &split{id: id, topicPartition: tp, epoch: noEpoch})
			}
		}
	}
	return out
}

// place sets next of each split: from the checkpoint, by the start rule when the job starts from nothing, else from the partition's
// beginning, since it appeared after the checkpoint.
func (r *reader[T]) place(ctx context.Context, owned []*split, topics map[string]kafkaconn.Topic, restored []sources.Position, fresh bool) error {
	ctx, cancel := context.WithTimeout(ctx, r.settings.deadline)
	defer cancel()
	known := map[splitID]position{}
	for _, sp := range restored {
		p, err := decodePosition(sp)
		if err != nil {
			return operator.Fatal(err)
		}
		t, ok := topics[p.topic]
		switch {
		case !ok:
			r.rc.Logger.Warn("the checkpoint holds a position of a topic that the job does not read any more", "topic", p.topic)
			continue
		case t.ID != p.id.topic:
			return operator.Fatal(fmt.Errorf("topic %s was deleted and created again since the checkpoint (id %s, now %s): its offsets mean nothing any more; "+
				"start the job without the checkpoint, or give the source a new uid", p.topic, p.id.topic, t.ID))
		}
		known[p.id] = p
	}
	var open []topicPartition
	for _, s := range owned {
		if p, ok := known[s.id]; ok {
			s.next, s.epoch = p.next, p.epoch
		} else {
			s.next = -1
			open = append(open, s.topicPartition)
		}
	}
	var starts map[topicPartition]int64
	var err error
	if fresh {
		starts, err = r.startOffsets(ctx, open)
	} else {
		starts, err = mustList(ctx, r.cl, open, atStart)
	}
	if err != nil {
		return err
	}
	for _, s := range owned {
		if s.next < 0 {
			s.next = starts[s.topicPartition]
		}
	}
	return nil
}

// startOffsets resolves the start rule to numbers.
func (r *reader[T]) startOffsets(ctx context.Context, parts []topicPartition) (map[topicPartition]int64, error) {
	switch r.settings.start {
	case startLatest:
		return mustList(ctx, r.cl, parts, atEnd)
	case startTimestamp:
		// The ends come first: a record written in between is then found by its timestamp or lies behind the end.
		ends, err := mustList(ctx, r.cl, parts, atEnd)
		if err != nil {
			return nil, err
		}
		found, err := listOffsets(ctx, r.cl, parts, r.settings.startAt.UnixMilli())
		if err != nil {
			return nil, err
		}
		for tp, o := range found {
			ends[tp] = o
		}
		return ends, nil
	case startGroup:
		starts, err := mustList(ctx, r.cl, parts, atStart)
		if err != nil {
			return nil, err
		}
		return starts, groupOffsets(ctx, r.cl, r.settings.group, starts)
	case startEarliest:
	}
	return mustList(ctx, r.cl, parts, atStart)
}

// checkLost compares the positions to what the partitions still hold.
func (r *reader[T]) checkLost(ctx context.Context, owned []*split) error {
	ctx, cancel := context.WithTimeout(ctx, r.settings.deadline)
	defer cancel()
	parts := make([]topicPartition, len(owned))
	for i, s := range owned {
		parts[i] = s.topicPartition
	}
	starts, err := mustList(ctx, r.cl, parts, atStart)
	if err != nil {
		return err
	}
	ends, err := mustList(ctx, r.cl, parts, atEnd)
	if err != nil {
		return err
	}
	for _, s := range owned {
		first, end := starts[s.topicPartition], ends[s.topicPartition]
		if s.next > end {
			return operator.DataLoss(fmt.Errorf("%s/%d: the checkpoint goes on at offset %d but the partition ends at %d; the broker has lost records or the topic was replaced",
				s.topic, s.partition, s.next, end))
		}
		if s.next < first {
			next, err := r.overGap(s.topicPartition, s.next, first)
			if err != nil {
				return err
			}
			s.next, s.epoch = next, noEpoch
		}
	}
	return nil
}

// overGap decides about records that retention deleted before they were read.
func (r *reader[T]) overGap(tp topicPartition, wanted, first int64) (int64, error) {
	if !r.settings.skipLost {
		return 0, operator.DataLoss(fmt.Errorf("%s/%d: offset %d is wanted and the first one kept is %d: %d records were deleted before they were read; "+
			"restore them, or let the source go on with the option SkipLostRecords", tp.topic, tp.partition, wanted, first, first-wanted))
	}
	r.rc.Counters.Lost(uint64(first - wanted))
	r.rc.Logger.Warn("records were deleted before they were read; going on at the oldest one kept", "topic", tp.topic, "partition", tp.partition,
		"wanted", wanted, "first", first, "lost", first-wanted)
	return first, nil
}

func (r *reader[T]) release() { r.released.Do(func() { close(r.hold) }) }

// Positions implements sources.Reader. Dead letters written so far are made durable first: the positions pass over their records.
func (r *reader[T]) Positions() ([]sources.Position, error) {
	if r.letters != nil {
		if err := r.letters.flush(); err != nil {
			return nil, err
		}
	}
	out := make([]sources.Position, len(r.splits))
	for i, s := range r.splits {
		out[i] = position{s.id, s.topic, s.next, s.epoch}.encode()
	}
	if r.watch != nil {
		r.watch.snapshot(r.splits)
	}
	return out, nil
}

// SplitName implements sources.SplitNamer.
func (r *reader[T]) SplitName(key string) (name string, lag int64) {
	for _, s := range r.splits {
		if s.id.key() != key {
			continue
		}
		lag = -1
		if end, known := r.ends[s]; known {
			lag = max(0, end-s.next)
		}
		return fmt.Sprintf("partition %d of topic %s", s.partition, s.topic), lag
	}
	return key, -1
}

// CheckpointCompleted implements sources.Reader.
func (r *reader[T]) CheckpointCompleted(uint64) {
	r.release()
	r.watch.commitGroup()
}

// Close implements sources.Reader.
func (r *reader[T]) Close() error {
	if r.watch != nil {
		r.watch.stop()
	}
	if r.fetcher != nil {
		r.fetcher.Close()
	}
	if r.letters != nil {
		r.letters.close()
	}
	if r.cl != nil {
		r.cl.Close()
	}
	return nil
}
