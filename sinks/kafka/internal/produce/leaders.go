package produce

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
)

const (
	// refresh is how often partitions are asked for anew, so that records are spread over those that were added.
	refresh = 5 * time.Minute
	// The time from one question for leaders to the next, which grows while the answers do not help.
	firstLook   = 100 * time.Millisecond
	longestLook = 2 * time.Second
)

// again notes an answer after which something is tried again: where the leaders are by then is asked first.
func (w *Writer) again(trouble error) { w.trouble, w.stale = trouble, true }

// look asks for the producer id of a writer without transactions, and for partitions and leaders, where they are wanted, and returns when
// to look again.
func (w *Writer) look(now time.Time) time.Time {
	wanted := w.stale
	for _, t := range w.topics {
		wanted = wanted || t.asked
	}
	switch {
	case len(w.topics) == 0 || w.asking:
		return time.Time{}
	case !wanted && now.Before(w.looked.Add(refresh)):
		return w.looked.Add(refresh)
	case now.Before(w.looked.Add(w.lookPause)):
		return w.looked.Add(w.lookPause)
	}
	var names []string
	for name := range w.topics {
		names = append(names, name)
	}
	w.asking, w.looked, w.stale = true, now, false
	w.lookPause = min(max(2*w.lookPause, firstLook), longestLook)
	id := w.who.id < 0 && !w.who.transactional
	w.done.Go(func() { w.ask(names, id) })
	return time.Time{}
}

func (w *Writer) ask(names []string, id bool) {
	ctx, cancel := context.WithTimeout(w.ctx, w.limit())
	defer cancel()
	var who identity
	var found *kmsg.MetadataResponse
	var err error
	step := answers.Init
	if id {
		who, err = w.initialise(ctx)
	}
	if err == nil {
		step = answers.Metadata
		found, err = kafkaconn.AboutTopics(names...).RequestWith(ctx, w.cfg.Client)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.poke()
	w.asking = false
	switch {
	case w.err != nil:
	case err != nil:
		w.unanswered(step, err)
	default:
		if id {
			w.who = who
		}
		w.learn(found)
	}
}

// unanswered fails unless the question may be asked again.
func (w *Writer) unanswered(step answers.Step, err error) {
	if answers.React(step, err) != answers.Again {
		w.fail(err)
		return
	}
	w.again(err)
}

// learn takes over topics, partitions and leaders, and the records that waited for them.
func (w *Writer) learn(m *kmsg.MetadataResponse) {
	helped := true
	for i := range m.Topics {
		found := &m.Topics[i]
		if found.Topic == nil {
			continue
		}
		t := w.topics[*found.Topic]
		if t == nil {
			continue
		}
		err := codeError(found.ErrorCode)
		if err == nil && len(found.Partitions) == 0 {
			err = kerr.LeaderNotAvailable
		}
		if err != nil {
			if t.wanted() { // else it may be gone for good, which is nobody's trouble
				helped = false
				w.unanswered(answers.Produce, fmt.Errorf("topic %s: %w", t.name, err))
			}
		} else {
			w.learnTopic(t, found)
		}
		if w.err != nil {
			return
		}
	}
	if helped {
		w.lookPause = firstLook
	}
}

func (w *Writer) learnTopic(t *topic, found *kmsg.MetadataResponseTopic) {
	if t.partitions != nil && t.id != found.TopicID {
		w.fail(fmt.Errorf("topic %s was deleted and created again", t.name))
		return
	}
	t.id = found.TopicID
	for i := range found.Partitions {
		p := &found.Partitions[i]
		for int(p.Partition) >= len(t.partitions) {
			t.partitions = append(t.partitions, &partition{topic: t, index: int32(len(t.partitions)), leader: -1})
		}
		t.partitions[p.Partition].leader = p.Leader
	}
	t.asked = false
	waiting := t.waiting
	t.waiting = nil
	for i, r := range waiting {
		if !w.add(t, r.partition, r.key, r.value, r.headers, r.millis) {
			t.waiting = waiting[i:]
			w.fail(fmt.Errorf("%w: %s/%d", errNoPartition, t.name, r.partition))
			return
		}
	}
}
