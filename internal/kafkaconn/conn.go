package kafkaconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/operator"
)

// SplitList splits a list of names separated by commas, dropping empty ones.
func SplitList(list string) []string {
	var out []string
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

const pause = 100 * time.Millisecond

// Reach waits until one of the client's seed brokers answers, at most for limit. A refused login or certificate ends it at once; a
// broker that does not answer does not, since it may come back.
func Reach(ctx context.Context, cl *kgo.Client, addresses []string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		for _, b := range cl.SeedBrokers() {
			_, err := b.Request(ctx, kmsg.NewPtrMetadataRequest())
			if err == nil {
				return nil
			}
			if refused := Refused(err, Access{}); refused != nil {
				return fmt.Errorf("connect to Kafka at %s: %w", strings.Join(addresses, ","), refused)
			}
			var timed interface{ Timeout() bool }
			if last == nil || !errors.As(err, &timed) || !timed.Timeout() {
				last = err // a wait that was cut off says less than what came before
			}
		}
		if !Sleep(ctx, pause) {
			return fmt.Errorf("no Kafka broker answered at %s within %s; check the address and that the broker is up: %w",
				strings.Join(addresses, ","), limit, last)
		}
	}
}

// TopicID is the id a topic keeps from its creation to its deletion.
type TopicID [16]byte

// String returns the id in hexadecimal.
func (id TopicID) String() string { return fmt.Sprintf("%x", id[:]) }

// Topic is what metadata tells about a topic.
type Topic struct {
	Name       string
	ID         TopicID
	Partitions int

	leaders    []int32 // each once
	operations int32   // that the user may carry out, a bit each; zero or less when the broker does not tell
}

func topicOf(t kmsg.MetadataResponseTopic) Topic {
	out := Topic{Name: *t.Topic, ID: t.TopicID, Partitions: len(t.Partitions), operations: t.AuthorizedOperations}
	for _, p := range t.Partitions {
		if p.Leader >= 0 && !slices.Contains(out.leaders, p.Leader) {
			out.leaders = append(out.leaders, p.Leader)
		}
	}
	return out
}

// ErrNoTopic tells that a topic does not exist.
var ErrNoTopic = errors.New("topic does not exist")

// missingTopic is ErrNoTopic for a user.
type missingTopic string

func (t missingTopic) Error() string {
	return fmt.Sprintf("topic %q does not exist on the cluster; create it or correct the name", string(t))
}

func (missingTopic) Unwrap() error { return ErrNoTopic }

// Topics asks for topics by name. Each name has an entry in the answer: a topic, or an error such as ErrNoTopic.
func Topics(ctx context.Context, cl *kgo.Client, names ...string) (map[string]Topic, map[string]error, error) {
	return askTopics(ctx, cl, false, names)
}

// AboutTopics returns the request for what a cluster knows of topics and of who leads their partitions.
func AboutTopics(names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	return req
}

// askTopics asks for topics and, for the price of a few look-ups at the broker, for what the user may do with them.
func askTopics(ctx context.Context, cl *kgo.Client, rights bool, names []string) (map[string]Topic, map[string]error, error) {
	req := AboutTopics(names...)
	req.IncludeTopicAuthorizedOperations = rights
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, nil, fmt.Errorf("ask for the topics %s: %w", strings.Join(names, ", "), OrRefused(err, Access{}))
	}
	found, missing := map[string]Topic{}, map[string]error{}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil:
			found[*t.Topic] = topicOf(t)
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			missing[*t.Topic] = fmt.Errorf("%s: %w", *t.Topic, ErrNoTopic)
		default:
			missing[*t.Topic] = fmt.Errorf("topic %s: %w", *t.Topic, OrRefused(err, Access{Operation: "Describe", Topic: *t.Topic}))
		}
	}
	for _, name := range names {
		if _, ok := found[name]; !ok && missing[name] == nil {
			missing[name] = fmt.Errorf("%s: %w", name, ErrNoTopic)
		}
	}
	return found, missing, nil
}

// topicPatience is how long a topic may be unknown before it counts as missing: a broker that just started learns its topics late.
const topicPatience = 3 * time.Second

// Right is an operation on a topic, by its number in Kafka's protocol.
type Right uint8

// The rights that sources and sinks need.
const (
	Read  Right = 3
	Write Right = 4
)

// String names the operation as Kafka's tools do.
func (r Right) String() string {
	if r == Read {
		return "Read"
	}
	return "Write"
}

// FindTopics asks for topics until all are found, and checks that the user has the right on each. One that stays missing is a fatal
// error, since no restart brings it.
func FindTopics(ctx context.Context, cl *kgo.Client, limit time.Duration, right Right, names ...string) (map[string]Topic, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	for {
		found, missing, err := askTopics(ctx, cl, true, names)
		if err != nil {
			return nil, err
		}
		for name, t := range found {
			if t.operations > 0 && t.operations&(1<<right) == 0 {
				return nil, Refused(kerr.TopicAuthorizationFailed, Access{Operation: right.String(), Topic: name})
			}
		}
		if len(missing) == 0 {
			return found, meetLeaders(ctx, cl, found)
		}
		for _, name := range names {
			err := missing[name]
			switch {
			case err == nil:
			case errors.Is(err, operator.ErrRefused):
				return nil, err
			case errors.Is(err, ErrNoTopic) && time.Since(begin) > min(topicPatience, limit/2):
				return nil, operator.Fatal(missingTopic(name))
			}
		}
		if !Sleep(ctx, pause) {
			for _, err := range missing {
				return nil, err
			}
		}
	}
}

// meetLeaders returns a refusal of any broker that leads a partition of the topics: a client goes on without a word where one broker of
// several has an expired certificate. Brokers that do not answer are left to the client, since they may come back.
func meetLeaders(ctx context.Context, cl *kgo.Client, topics map[string]Topic) error {
	leaders := map[int32]bool{}
	for _, t := range topics {
		for _, id := range t.leaders {
			leaders[id] = true
		}
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan error, len(leaders)) // of that size, so that nobody waits for a look that is given up
	for id := range leaders {
		wait.Go(func() {
			_, err := cl.Broker(int(id)).Request(ctx, kmsg.NewPtrApiVersionsRequest())
			answers <- err
		})
	}
	var refused error
	patience := time.NewTimer(leaderPatience)
	defer patience.Stop()
	for range leaders {
		select {
		case err := <-answers:
			if r := Refused(err, Access{}); r != nil && refused == nil {
				refused = fmt.Errorf("connect to Kafka: %w", r)
			}
		case <-patience.C:
			return refused
		}
	}
	return refused
}

// leaderPatience is how long the leaders of partitions may take to answer before the look at them is given up.
const leaderPatience = 2 * time.Second

// Sleep waits for d, or less when ctx ends before, and then returns false.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
