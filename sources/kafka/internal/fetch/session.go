package fetch

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// session is what a broker keeps of our requests (KIP-227): it answers about the partitions that it knows of, and a request names only those
// that are new, gone, or to be read elsewhere.
type session struct {
	id    int32
	epoch int32 // 0: the next request asks for everything and makes a session; noSession: the broker keeps none
	knows map[*Partition]asked
	// Of the request under way.
	sent map[*Partition]asked
	gone []*Partition
}

// noSession is the epoch of requests outside of sessions.
const noSession = -1

// asked is how a partition was asked for.
type asked struct {
	offset int64
	epoch  int32
	bytes  int32
}

// reset forgets the session. A request of epoch 0 with its id lets the broker forget it too.
func (s *session) reset() {
	if s.epoch != noSession {
		s.epoch = 0
	}
	clear(s.knows)
}

// request returns the request for partitions, of which the first ones come first.
func (s *session) request(partitions []*Partition, bytes, perPartition int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes, req.MaxBytes = 1, bytes
	req.IsolationLevel = 1 // read_committed
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	s.sent, s.gone = make(map[*Partition]asked, len(partitions)), nil
	at := map[*topic]int{}
	for _, p := range partitions {
		a := asked{p.next, p.leaderEpoch, perPartition}
		s.sent[p] = a
		if known, ok := s.knows[p]; ok && known == a {
			continue
		}
		i, ok := at[p.topic]
		if !ok {
			i = len(req.Topics)
			at[p.topic] = i
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = p.topic.name, p.topic.id
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.FetchOffset, rp.PartitionMaxBytes = p.index, a.epoch, a.offset, a.bytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	forget := map[*topic]int{}
	for p := range s.knows {
		if _, ok := s.sent[p]; ok {
			continue
		}
		s.gone = append(s.gone, p)
		i, ok := forget[p.topic]
		if !ok {
			i = len(req.ForgottenTopics)
			forget[p.topic] = i
			t := kmsg.NewFetchRequestForgottenTopic()
			t.Topic, t.TopicID = p.topic.name, p.topic.id
			req.ForgottenTopics = append(req.ForgottenTopics, t)
		}
		req.ForgottenTopics[i].Partitions = append(req.ForgottenTopics[i].Partitions, p.index)
	}
	return req
}

// answered takes over what the broker knows after it has answered without an error.
func (s *session) answered(version int16, id int32) {
	const firstWithSessions = 7
	if version < firstWithSessions || id == 0 || s.epoch == noSession {
		s.id, s.epoch = 0, noSession
		return
	}
	if s.epoch == math.MaxInt32 {
		s.epoch = 0
	}
	s.id = id
	s.epoch++
	if s.knows == nil {
		s.knows = map[*Partition]asked{}
	}
	for _, p := range s.gone {
		delete(s.knows, p)
	}
	for p, a := range s.sent {
		s.knows[p] = a
	}
}

// closing returns the request that ends the session, or nil where there is none.
func (s *session) closing() *kmsg.FetchRequest {
	if s.epoch <= 0 {
		return nil
	}
	req := kmsg.NewPtrFetchRequest()
	req.IsolationLevel = 1
	req.SessionID, req.SessionEpoch = s.id, -1
	return req
}
