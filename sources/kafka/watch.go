package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources"
	"github.com/weir-stream/weir/sources/kafka/internal/fetch"
)

const (
	// silentAfter is how long nothing is heard of a partition by fetching, as when nobody takes what was fetched, until its end is asked for.
	// Fetching an idle one tells of it more often.
	silentAfter = 3 * time.Second
	// endsEvery is how often that is asked for then.
	endsEvery = time.Second
)

// news is what the watcher found out since it was last asked.
type news struct {
	added []*split
	// ends holds the high watermarks as of asOf; nil when there is nothing new.
	ends map[topicPartition]int64
	asOf time.Time
}

// watcher asks the cluster beside the fetching, so that a slow answer never holds back records.
type watcher struct {
	cl       *kgo.Client
	fetcher  *fetch.Fetcher
	settings settings
	rc       sources.ReaderContext
	cancel   context.CancelFunc
	wait     sync.WaitGroup
	commit   chan struct{} // of size 1: a full one already asks
	arrived  chan struct{} // of size 1: full when take may have something to return

	// Of the watcher's goroutine.
	topics map[string]kafkaconn.Topic
	have   map[topicPartition]bool
	silent bool   // the cluster does not answer
	asking func() // ends the entry of the wait for an answer; nil while there is none

	mu      sync.Mutex
	news    news
	failure error
	offsets map[topicPartition]int64
}

func newWatcher(cl *kgo.Client, f *fetch.Fetcher, s settings, rc sources.ReaderContext, topics map[string]kafkaconn.Topic, owned []*split) *watcher {
	w := &watcher{
		cl: cl, fetcher: f, settings: s, rc: rc, topics: topics, have: map[topicPartition]bool{},
		commit: make(chan struct{}, 1), arrived: make(chan struct{}, 1),
	}
	for _, o := range owned {
		w.have[o.topicPartition] = true
	}
	return w
}

func (w *watcher) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.wait.Add(1)
	go func() {
		defer w.wait.Done()
		w.run(ctx)
	}()
}

func (w *watcher) stop() {
	w.cancel()
	w.wait.Wait()
}

func (w *watcher) run(ctx context.Context) {
	ends := time.NewTimer(silentAfter)
	defer ends.Stop()
	var discover <-chan time.Time
	if w.settings.discovery > 0 {
		ticker := time.NewTicker(w.settings.discovery)
		defer ticker.Stop()
		discover = ticker.C
	}
	for {
		var ask func(context.Context) error
		select {
		case <-ctx.Done():
			return
		case <-ends.C:
			now := time.Now()
			silent, earliest := w.fetcher.Silent(now.Add(-silentAfter))
			if len(silent) == 0 {
				ends.Reset(max(endsEvery, earliest.Add(silentAfter).Sub(now)))
				w.answered(ctx, nil) // by fetching
				continue
			}
			ends.Reset(endsEvery)
			ask = func(ctx context.Context) error { return w.askEnds(ctx, silent) }
		case <-discover:
			ask = w.askPartitions
		case <-w.commit:
			ask = w.commitOffsets
		}
		if w.asking == nil {
			w.asking = sources.Waiting(w.rc.Counters, w.settings.answer())
		}
		w.answered(ctx, ask(ctx))
	}
}

// answered ends the wait for an answer unless there was none.
func (w *watcher) answered(ctx context.Context, err error) {
	if w.asking != nil && (err == nil || ctx.Err() != nil) {
		w.asking()
		w.asking = nil
	}
	w.note(ctx, err)
}

// note logs when the cluster stops answering and when it answers again. A refusal fails the task: the connections that fetch may go on for
// long with a right or a login that is gone, and then stop without a word.
func (w *watcher) note(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, operator.ErrRefused):
		w.fail(err)
	case err != nil && !w.silent:
		w.silent = true
		w.rc.Counters.Lag(-1)
		w.rc.Logger.Warn("the cluster does not answer; reading goes on when it does", "brokers", w.settings.brokers, "error", err)
	case err == nil && w.silent:
		w.silent = false
		w.rc.Logger.Info("the cluster answers again", "brokers", w.settings.brokers)
	}
}

func (w *watcher) askEnds(ctx context.Context, of []*fetch.Partition) error {
	parts := make([]topicPartition, len(of))
	for i, p := range of {
		parts[i] = topicPartition{p.Topic(), p.Index()}
	}
	ctx, cancel := context.WithTimeout(ctx, w.settings.deadline)
	defer cancel()
	asOf := w.rc.Now()
	ends, err := listOffsets(ctx, w.cl, parts, atEnd)
	if err != nil {
		return err
	}
	w.tell(func(n *news) { n.ends, n.asOf = ends, asOf })
	return nil
}

// askPartitions looks for new partitions. They are read from their beginning: what was written before they were found counts.
func (w *watcher) askPartitions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.settings.deadline)
	defer cancel()
	found, missing, err := kafkaconn.Topics(ctx, w.cl, w.settings.topics...)
	if err != nil {
		return err
	}
	for _, err := range missing {
		return err // a broker that has just started knows its topics late; reading itself tells of a deleted one
	}
	for name, t := range found {
		if known := w.topics[name]; known.ID != t.ID {
			w.fail(operator.Fatal(fmt.Errorf("topic %s was deleted and created again while it was read (id %s, now %s)", name, known.ID, t.ID)))
			return nil
		}
	}
	added := ownedSplits(found, w.rc.Subtask, w.rc.Parallelism, func(tp topicPartition) bool { return w.have[tp] })
	if len(added) == 0 {
		return nil
	}
	parts := make([]topicPartition, len(added))
	for i, s := range added {
		parts[i] = s.topicPartition
	}
	starts, err := mustList(ctx, w.cl, parts, atStart)
	if err != nil {
		return err
	}
	for _, s := range added {
		s.next = starts[s.topicPartition]
		w.have[s.topicPartition] = true
		w.rc.Logger.Info("found a new partition", "topic", s.topic, "partition", s.partition)
	}
	w.tell(func(n *news) { n.added = append(n.added, added...) })
	return nil
}

// tell adds to the news.
func (w *watcher) tell(add func(*news)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	add(&w.news)
	w.arrive()
}

func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failure = err
	w.arrive()
}

// arrive wakes whoever waits for news.
func (w *watcher) arrive() {
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}

// take returns the news.
func (w *watcher) take() (news, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.news
	w.news = news{}
	return n, w.failure
}

// snapshot remembers the positions of the newest snapshot for the group.
func (w *watcher) snapshot(splits []*split) {
	if w.settings.group == "" {
		return
	}
	offsets := make(map[topicPartition]int64, len(splits))
	for _, s := range splits {
		offsets[s.topicPartition] = s.next
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offsets = offsets
}

// commitGroup has the newest snapshot's positions committed to the group soon. They may be those of a checkpoint that is not complete
// yet: only lag tools look at them.
func (w *watcher) commitGroup() {
	if w.settings.group == "" {
		return
	}
	select {
	case w.commit <- struct{}{}:
	default:
	}
}

func (w *watcher) commitOffsets(ctx context.Context) error {
	w.mu.Lock()
	positions := w.offsets
	w.mu.Unlock()
	if len(positions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.settings.deadline)
	defer cancel()
	var offsets kadm.Offsets
	for tp, next := range positions {
		offsets.Add(kadm.Offset{Topic: tp.topic, Partition: tp.partition, At: next, LeaderEpoch: -1})
	}
	resp, err := kadm.NewClient(w.cl).CommitOffsets(ctx, w.settings.group, offsets)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return fmt.Errorf("commit offsets to group %s: %w", w.settings.group, kafkaconn.OrRefused(err, kafkaconn.Access{Operation: "Read", Group: w.settings.group}))
	}
	return nil
}

// describeGroups is the newest version of the request by which a broker tells what is allowed with a group that does not exist yet.
const describeGroups = 5

// checkGroup returns a refusal when the user may not commit to the group. Where the broker does not tell, the first commit will.
func checkGroup(ctx context.Context, s settings) error {
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.DescribeGroups), describeGroups)
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.brokers...), kgo.MaxVersions(versions)}, s.options...)...)
	if err != nil {
		return fmt.Errorf("make a Kafka client: %w", err)
	}
	defer cl.Close()
	group := s.group
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups, req.IncludeAuthorizedOperations = []string{group}, true
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return kafkaconn.Refused(err, kafkaconn.Access{Operation: "Describe", Group: group})
	}
	for _, g := range resp.Groups {
		if refused := kafkaconn.Refused(kerr.ErrorForCode(g.ErrorCode), kafkaconn.Access{Operation: "Describe", Group: group}); refused != nil {
			return refused
		}
		if g.AuthorizedOperations > 0 && g.AuthorizedOperations&(1<<kafkaconn.Read) == 0 {
			return kafkaconn.Refused(kerr.GroupAuthorizationFailed, kafkaconn.Access{Operation: "Read", Group: group})
		}
	}
	return nil
}

// groupOffsets replaces the starts of partitions for which the group has committed an offset.
func groupOffsets(ctx context.Context, cl *kgo.Client, group string, starts map[topicPartition]int64) error {
	resp, err := kadm.NewClient(cl).FetchOffsets(ctx, group)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return fmt.Errorf("read the offsets of group %s: %w", group, kafkaconn.OrRefused(err, kafkaconn.Access{Operation: "Describe", Group: group}))
	}
	for tp := range starts {
		if o, ok := resp.Lookup(tp.topic, tp.partition); ok && o.At >= 0 {
			starts[tp] = o.At
		}
	}
	return nil
}
