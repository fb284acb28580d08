package produce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Config configures a Writer.
type Config struct {
	// Client carries the requests. It asks for the acknowledgement of all in-sync replicas, and its producer is not used. The caller closes
	// it after the writer.
	Client *kgo.Client
	// TransactionalID is empty for a writer without transactions, which is idempotent all the same.
	TransactionalID    string
	TransactionTimeout time.Duration
	// TransactionsV2 tells that the cluster speaks the second transaction protocol, and the client too.
	TransactionsV2 bool
	// IgnoreKeys sends records with a key where those without one go.
	IgnoreKeys bool
	Linger     time.Duration
	// Deadline bounds single requests.
	Deadline time.Duration
	// BatchBytes is the largest batch of a topic.
	BatchBytes func(topic string) int
	// Delivered is called with the outcome of each batch, from one goroutine at a time. It must not block, nor call the writer.
	Delivered func(Delivery)
}

// Delivery is the outcome of a batch.
type Delivery struct {
	Topic     string
	Partition int32
	Offset    int64 // of the first record
	Records   int64
	Bytes     int // of keys, values and headers
	Err       error
}

var (
	errNoPartition = errors.New("topic has no such partition")
	errClosed      = errors.New("the writer is closed")
)

const (
	// batchBytes is the largest batch, but for one record that is larger.
	batchBytes = 1 << 20
	// pushBytes is how much may be waiting for a push to have it leave at once. Beyond that there is load, under which requests are to be few.
	pushBytes = 16 << 10
	// spareBytes bounds the buffers that are kept for later batches.
	spareBytes = 8 << 20
)

// Writer writes records.
type Writer struct {
	cfg        Config
	compressor kgo.Compressor
	ctx        context.Context //nolint:containedctx // ends at Close: requests outlive the calls that fill them
	cancel     context.CancelFunc
	done       sync.WaitGroup
	wake       chan struct{} // of size 1: a full one already wakes
	packed     sync.Pool     // of *bytes.Buffer, for compression

	mu     sync.Mutex
	who    identity // id -1: not initialised
	err    error    // after which nothing is written
	topics map[string]*topic
	last   *topic
	active []*partition
	busy   map[int32]bool // brokers with a request under way
	// pending is how many records have no outcome yet.
	pending int64
	flushes int
	drained chan struct{} // closed when pending is 0, which it is after an error too; nil when nobody waits
	spare   []*batch
	spared  int // bytes of spare
	joining bool
	// What is about leaders: a question is under way, when it was asked and how long until the next, and that one is wanted.
	asking    bool
	looked    time.Time
	lookPause time.Duration
	stale     bool
	trouble   error // the last answer after which something is tried again; nil once something was written
}

// New makes a writer. It does no I/O.
func New(cfg Config) (*Writer, error) {
	codecs, _ := cfg.Client.OptValue(kgo.ProducerBatchCompression).([]kgo.CompressionCodec)
	compressor, err := kgo.DefaultCompressor(codecs...)
	if err != nil {
		return nil, fmt.Errorf("compression: %w", err)
	}
	w := &Writer{
		cfg: cfg, compressor: compressor, wake: make(chan struct{}, 1), who: identity{id: -1, transactional: cfg.TransactionalID != ""},
		topics: map[string]*topic{}, busy: map[int32]bool{},
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.done.Go(w.run)
	return w, nil
}

// Close gives up what has no outcome and waits for the writer's goroutines.
func (w *Writer) Close() {
	w.cancel()
	w.done.Wait()
}

// Send encodes a record into a batch; it refers to nothing of it afterwards, unless topic or partition is not known yet. It does not wait for a
// broker. partition is negative for the writer's choice.
func (w *Writer) Send(topicName string, partition int32, key, value []byte, headers []kgo.RecordHeader, millis int64) error {
	w.mu.Lock()
	if err := w.err; err != nil {
		w.mu.Unlock()
		return err
	}
	t := w.last
	if t == nil || t.name != topicName {
		t = w.topic(topicName)
		w.last = t
	}
	w.pending++
	if t.partitions == nil || !w.add(t, partition, key, value, headers, millis) {
		t.waiting = append(t.waiting, record{partition, key, value, headers, millis})
		if !t.asked { // the partition may be a new one
			t.asked = true
			w.poke()
		}
	}
	w.mu.Unlock()
	return nil
}

// topic returns the state of a topic and has a new one asked for.
func (w *Writer) topic(name string) *topic {
	t := w.topics[name]
	if t == nil {
		t = &topic{name: name, limit: min(w.cfg.BatchBytes(name), batchBytes), asked: true}
		w.topics[name] = t
		w.poke()
	}
	return t
}

// add encodes a record unless its partition is not known.
func (w *Writer) add(t *topic, index int32, key, value []byte, headers []kgo.RecordHeader, millis int64) bool {
	p, ok := t.choose(index, key, w.cfg.IgnoreKeys)
	if !ok {
		return false
	}
	if p.open != nil && !p.open.append(key, value, headers, millis, t.limit) {
		p.full = append(p.full, p.open)
		p.open = nil
		w.poke()
		if t.sticky == p {
			t.sticky = nil
			p, _ = t.choose(index, key, w.cfg.IgnoreKeys)
		}
		if p.open != nil { // the newly chosen one's, which may be full as well
			return w.add(t, p.index, key, value, headers, millis)
		}
	}
	if p.open == nil {
		p.open = w.batch()
		p.open.append(key, value, headers, millis, t.limit)
		p.leaves, p.pushed = time.Now().Add(w.cfg.Linger), false
		if !p.listed {
			p.listed = true
			w.active = append(w.active, p)
		}
		w.poke()
	}
	return true
}

func (w *Writer) batch() *batch {
	var b *batch
	if n := len(w.spare); n > 0 {
		b, w.spare = w.spare[n-1], w.spare[:n-1]
		w.spared -= cap(b.buf)
	} else {
		b = &batch{}
	}
	b.reset()
	return b
}

// outcome tells what became of a batch and takes it back.
func (w *Writer) outcome(p *partition, b *batch, offset int64, err error) {
	w.cfg.Delivered(Delivery{Topic: p.topic.name, Partition: p.index, Offset: offset, Records: int64(b.records), Bytes: b.payload, Err: err})
	w.settled(int64(b.records))
	if w.err == nil && w.spared+cap(b.buf) <= spareBytes {
		w.spare = append(w.spare, b)
		w.spared += cap(b.buf)
	}
}

func (w *Writer) settled(records int64) {
	w.pending -= records
	if w.pending == 0 && w.drained != nil {
		close(w.drained)
		w.drained = nil
	}
}

// fail ends everything with err.
func (w *Writer) fail(err error) {
	if w.err != nil {
		return
	}
	w.err = err
	for _, t := range w.topics {
		for _, r := range t.waiting {
			w.cfg.Delivered(Delivery{Topic: t.name, Partition: r.partition, Records: 1, Bytes: Payload(r.key, r.value, r.headers), Err: err})
			w.settled(1)
		}
		t.waiting = nil
		for _, p := range t.partitions {
			for _, b := range append(append([]*batch{p.flying}, p.full...), p.open) {
				if b != nil {
					w.outcome(p, b, -1, err)
				}
			}
			p.flying, p.full, p.open = nil, nil, nil
		}
	}
}

// Push has batches leave that have not lingered, unless that would make many small requests: no record is to follow soon.
func (w *Writer) Push() {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := 0
	for _, p := range w.active {
		if p.open != nil && !p.pushed {
			waiting += len(p.open.buf)
		}
	}
	if waiting == 0 || waiting > pushBytes {
		return
	}
	for _, p := range w.active {
		p.pushed = p.pushed || p.open != nil
	}
	w.poke()
}

// Flush waits until every record sent has its outcome.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flushes++
	defer func() { w.flushes-- }()
	w.poke()
	for w.pending > 0 && w.err == nil {
		if w.drained == nil {
			w.drained = make(chan struct{})
		}
		drained := w.drained
		w.mu.Unlock()
		select {
		case <-drained:
		case <-ctx.Done():
		case <-w.ctx.Done():
		}
		w.mu.Lock()
		if w.pending > 0 && w.err == nil {
			if err := ctx.Err(); err != nil {
				return errors.Join(err, w.trouble)
			}
			if w.ctx.Err() != nil {
				return errClosed
			}
		}
	}
	return w.err
}

// poke lets the sender look for work.
func (w *Writer) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func codeError(code int16) error { return kerr.ErrorForCode(code) }
