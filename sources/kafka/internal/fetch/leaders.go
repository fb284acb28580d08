package fetch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/internal/version"
)

const (
	// refresh is how often leaders are asked for although nothing speaks for another one.
	refresh = 5 * time.Minute
	// calm is how long nothing is asked for until the pauses between two questions are short again.
	calm = 10 * time.Second
	// oldAnswers is how often metadata with an older epoch of the leader is left alone: brokers hear late of it, and after a restored cluster it
	// is right.
	oldAnswers = 5
)

// lead asks for leaders, and whether new ones have what was read, until Close.
func (f *Fetcher) lead() {
	var asked time.Time
	fails := 0
	timer := time.NewTimer(refresh)
	defer timer.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-f.look:
		case <-timer.C:
		}
		if time.Since(asked) > calm {
			fails = 0
		}
		asked = time.Now()
		if !f.find() {
			poke(f.look)
		}
		fails++
		if !kafkaconn.Sleep(f.ctx, pauseAfter(fails)) {
			return
		}
		timer.Reset(refresh)
	}
}

// find asks for leaders once and reports whether that leaves no question.
func (f *Fetcher) find() bool {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Deadline)
	defer cancel()
	f.mu.Lock()
	names := make([]string, 0, len(f.topics))
	for name := range f.topics {
		names = append(names, name)
	}
	f.mu.Unlock()
	if len(names) == 0 {
		return true
	}
	resp, err := kafkaconn.AboutTopics(names...).RequestWith(ctx, f.cfg.Client)
	if err != nil {
		f.refused(err)
		return false
	}
	f.learn(resp)
	f.validate(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.topics {
		for _, p := range t.partitions {
			if !p.stopped && (p.leader == noLeader || p.validate) {
				return false
			}
		}
	}
	return true
}

// refused puts an error into the queue if the cluster refuses us.
func (f *Fetcher) refused(err error) {
	if refused := kafkaconn.Refused(err, kafkaconn.Access{}); refused != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.put(&Answer{Err: refused})
	}
}

// learn takes over who leads.
func (f *Fetcher) learn(m *kmsg.MetadataResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed = make(map[int32]bool, len(m.Brokers))
	for i := range m.Brokers {
		f.listed[m.Brokers[i].NodeID] = true
	}
	for i := range m.Topics {
		found := &m.Topics[i]
		if found.Topic == nil {
			continue
		}
		t := f.topics[*found.Topic]
		// A topic that was created again is for whoever compares ids to tell: the old one's partitions are unknown to their brokers.
		if t == nil || found.ErrorCode != 0 || found.TopicID != t.id {
			continue
		}
		for j := range found.Partitions {
			rp := &found.Partitions[j]
			if p := f.places[place{topic: t.name, index: rp.Partition}]; p != nil && rp.Leader >= 0 {
				f.follow(p, rp.Leader, rp.LeaderEpoch)
			}
		}
	}
}

// follow reads a partition from the leader of an epoch.
func (f *Fetcher) follow(p *Partition, leader, epoch int32) {
	if epoch < p.leaderEpoch {
		if p.olds++; p.olds <= oldAnswers {
			return
		}
	}
	p.olds = 0
	if epoch != p.leaderEpoch && p.readEpoch >= 0 {
		p.validate = true
		poke(f.look)
	}
	p.leaderEpoch = epoch
	f.assign(p, leader)
}

// validate asks the leaders of a new epoch how far the epoch of what was read last goes: what is beyond was cut off (KIP-320).
func (f *Fetcher) validate(ctx context.Context) {
	requests := map[int32]*kmsg.OffsetForLeaderEpochRequest{}
	f.mu.Lock()
	for _, t := range f.topics {
		at := map[int32]int{}
		for _, p := range t.partitions {
			if !p.validate || p.inFlight || p.stopped || p.leader == noLeader {
				continue
			}
			req := requests[p.leader]
			if req == nil {
				req = kmsg.NewPtrOffsetForLeaderEpochRequest()
				req.ReplicaID = -1
				requests[p.leader] = req
			}
			i, ok := at[p.leader]
			if !ok {
				i = len(req.Topics)
				at[p.leader] = i
				rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
				rt.Topic = t.name
				req.Topics = append(req.Topics, rt)
			}
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = p.index, p.leaderEpoch, p.readEpoch
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
		}
	}
	f.mu.Unlock()
	for leader, req := range requests {
		kresp, err := f.cfg.Client.Broker(int(leader)).Request(ctx, req)
		if err != nil {
			f.refused(err)
			if f.unable(ctx, leader) {
				f.trust(leader)
			}
			continue
		}
		if resp, ok := kresp.(*kmsg.OffsetForLeaderEpochResponse); ok {
			f.validated(leader, req, resp)
		}
	}
}

// unable reports whether a broker does not know the question of validate.
func (f *Fetcher) unable(ctx context.Context, broker int32) bool {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "weir", version.Version
	kresp, err := f.cfg.Client.Broker(int(broker)).Request(ctx, req)
	resp, ok := kresp.(*kmsg.ApiVersionsResponse)
	if err != nil || !ok || resp.ErrorCode != 0 {
		return false
	}
	return !slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == int16(kmsg.OffsetForLeaderEpoch) })
}

// trust reads on from a leader that cannot be asked.
func (f *Fetcher) trust(leader int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.brokers[leader]; b != nil {
		for _, p := range b.partitions {
			p.validate = false
		}
		poke(b.wake)
	}
}

// validated takes an answer of validate.
func (f *Fetcher) validated(leader int32, req *kmsg.OffsetForLeaderEpochRequest, resp *kmsg.OffsetForLeaderEpochResponse) {
	sent := map[place]kmsg.OffsetForLeaderEpochRequestTopicPartition{}
	for _, t := range req.Topics {
		for _, rp := range t.Partitions {
			sent[place{topic: t.Topic, index: rp.Partition}] = rp
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range resp.Topics {
		for _, rp := range t.Partitions {
			at := place{topic: t.Topic, index: rp.Partition}
			p, asked := f.places[at], sent[at]
			if p == nil || !p.validate || p.leader != leader || p.leaderEpoch != asked.CurrentLeaderEpoch {
				continue
			}
			switch err := kerr.ErrorForCode(rp.ErrorCode); {
			case errors.Is(err, kerr.TopicAuthorizationFailed):
				f.tell(p, err)
			case err != nil:
			case rp.EndOffset < 0:
				f.tell(p, fmt.Errorf("%w: offset %d comes next, after records of leader epoch %d, of which the leader knows nothing", ErrTruncated, p.next, p.readEpoch))
			case rp.EndOffset < p.next:
				f.tell(p, fmt.Errorf("%w: offset %d comes next, after records of leader epoch %d, and epoch %d ends at offset %d now",
					ErrTruncated, p.next, p.readEpoch, rp.LeaderEpoch, rp.EndOffset))
			default:
				p.validate = false
				f.wakeLeader(p)
			}
		}
	}
}
