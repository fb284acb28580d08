package kafkaconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
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

// Reach waits until one of the client's seed brokers answers, at most for limit. A refused login or certificate is fatal; a broker
// that does not answer is not, since it may come back.
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
			if fatal := Refused(err); fatal != nil {
				return fmt.Errorf("connect to Kafka at %s: %w", strings.Join(addresses, ","), fatal)
			}
			if last == nil || ctx.Err() == nil {
				last = err
			}
		}
		if !sleep(ctx, pause) {
			return fmt.Errorf("no Kafka broker answered at %s within %s; check the address and that the broker is up: %w",
				strings.Join(addresses, ","), limit, last)
		}
	}
}

// Refused returns a fatal error that names the cause when err says that the cluster refuses us whatever we repeat: login, rights or
// certificate. Otherwise it returns nil.
func Refused(err error) error {
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &cert):
		return operator.Fatal(fmt.Errorf("the broker's certificate is not accepted: %w", err))
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
		return operator.Fatal(fmt.Errorf("authentication failed; check user, password and mechanism: %w", err))
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return operator.Fatal(fmt.Errorf("no right on the topic: %w", err))
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return operator.Fatal(fmt.Errorf("no right on the transactional id (Write and Describe are needed): %w", err))
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return operator.Fatal(fmt.Errorf("no right on the consumer group: %w", err))
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return operator.Fatal(fmt.Errorf("no right on the cluster: %w", err))
	}
	return nil
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
}

// ErrNoTopic tells that a topic does not exist.
var ErrNoTopic = errors.New("topic does not exist")

// Topics asks for topics by name. Each name has an entry in the answer: a topic, or an error such as ErrNoTopic.
func Topics(ctx context.Context, cl *kgo.Client, names ...string) (map[string]Topic, map[string]error, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		if fatal := Refused(err); fatal != nil {
			err = fatal
		}
		return nil, nil, fmt.Errorf("ask for the topics %s: %w", strings.Join(names, ", "), err)
	}
	found, missing := map[string]Topic{}, map[string]error{}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil:
			found[*t.Topic] = Topic{Name: *t.Topic, ID: t.TopicID, Partitions: len(t.Partitions)}
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			missing[*t.Topic] = fmt.Errorf("%s: %w", *t.Topic, ErrNoTopic)
		default:
			if fatal := Refused(err); fatal != nil {
				err = fatal
			}
			missing[*t.Topic] = fmt.Errorf("topic %s: %w", *t.Topic, err)
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

// FindTopics asks for topics until all are found. One that stays missing is a fatal error, since no restart brings it.
func FindTopics(ctx context.Context, cl *kgo.Client, limit time.Duration, names ...string) (map[string]Topic, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	for {
		found, missing, err := Topics(ctx, cl, names...)
		if err != nil {
			return nil, err
		}
		if len(missing) == 0 {
			return found, nil
		}
		for _, name := range names {
			err := missing[name]
			switch {
			case err == nil:
			case operator.ClassOf(err) != operator.ClassRestart:
				return nil, err
			case errors.Is(err, ErrNoTopic) && time.Since(begin) > min(topicPatience, limit/2):
				return nil, operator.Fatal(fmt.Errorf("topic %q does not exist on the cluster; create it or correct the name: %w", name, err))
			}
		}
		if !sleep(ctx, pause) {
			for _, err := range missing {
				return nil, err
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
