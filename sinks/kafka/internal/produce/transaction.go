package produce

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
)

// Init initialises the transactional id, which ends whatever is open on it.
func (w *Writer) Init(ctx context.Context) error {
	if w.cfg.TransactionalID == "" {
		return nil // with the first record
	}
	who, err := w.initialise(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.who = who
	return nil
}

func (w *Writer) initialise(ctx context.Context) (identity, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	if id := w.cfg.TransactionalID; id != "" {
		req.TransactionalID = &id
		req.TransactionTimeoutMillis = int32(w.cfg.TransactionTimeout.Milliseconds())
	}
	resp, err := req.RequestWith(ctx, w.cfg.Client)
	if err != nil {
		return identity{}, err
	}
	if err := codeError(resp.ErrorCode); err != nil {
		return identity{}, err
	}
	return identity{id: resp.ProducerID, epoch: resp.ProducerEpoch, transactional: w.cfg.TransactionalID != ""}, nil
}

// joins reports whether partitions have to be made known to the coordinator before they are written to.
func (w *Writer) joins() bool { return w.who.transactional && !w.cfg.TransactionsV2 }

// join makes partitions known to the coordinator.
func (w *Writer) join(partitions []*partition) {
	ctx, cancel := context.WithTimeout(w.ctx, w.limit())
	defer cancel()
	w.mu.Lock()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = w.cfg.TransactionalID, w.who.id, w.who.epoch
	w.mu.Unlock()
	places := map[*topic]int{}
	for _, p := range partitions {
		i, ok := places[p.topic]
		if !ok {
			i = len(req.Topics)
			places[p.topic] = i
			t := kmsg.NewAddPartitionsToTxnRequestTopic()
			t.Topic = p.topic.name
			req.Topics = append(req.Topics, t)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p.index)
	}
	resp, err := req.RequestWith(ctx, w.cfg.Client)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.poke()
	w.joining = false
	for _, p := range partitions {
		p.joining = false
		p.later() // unless it is joined by the answer
	}
	if w.err != nil {
		return
	}
	if err != nil {
		w.unanswered(answers.Produce, err)
		return
	}
	for _, t := range resp.Topics {
		known := w.topics[t.Topic]
		for _, rp := range t.Partitions {
			if known == nil || int(rp.Partition) >= len(known.partitions) {
				continue
			}
			p := known.partitions[rp.Partition]
			if err := codeError(rp.ErrorCode); err != nil {
				w.unanswered(answers.Produce, fmt.Errorf("add %s/%d to the transaction: %w", t.Topic, rp.Partition, err))
				if w.err != nil {
					return
				}
				continue
			}
			p.joined, p.pause = true, 0
		}
	}
}

// Identity names the open transaction.
func (w *Writer) Identity() (producerID int64, epoch int16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.who.id, w.who.epoch
}

// Commit ends the transaction, which was flushed. Any error leaves it undecided.
func (w *Writer) Commit(ctx context.Context) error {
	w.mu.Lock()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = w.cfg.TransactionalID, w.who.id, w.who.epoch, true
	w.mu.Unlock()
	resp, err := req.RequestWith(ctx, w.cfg.Client)
	if err != nil {
		return err
	}
	if err := codeError(resp.ErrorCode); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if resp.Version >= 5 && resp.ProducerID >= 0 {
		w.who.id, w.who.epoch = resp.ProducerID, resp.ProducerEpoch
		for _, t := range w.topics {
			for _, p := range t.partitions {
				p.sequence = 0
			}
		}
	}
	for _, t := range w.topics {
		for _, p := range t.partitions {
			p.joined = false
		}
	}
	return nil
}
