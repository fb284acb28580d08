package kafkasink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
)

const (
	// defaultMaxMessage is Kafka's default of max.message.bytes, for topics whose settings may not be read.
	defaultMaxMessage = 1048588
	// defaultMaxTimeout is Kafka's default of transaction.max.timeout.ms.
	defaultMaxTimeout = 15 * time.Minute
	// featureTransactions is the finalized feature that decides the transaction protocol.
	featureTransactions = "transaction.version"
)

// cluster is the sink's own connection to the brokers, apart from the clients that write. It is safe for concurrent use.
type cluster struct {
	cl *kgo.Client
	// v1 and v2 send EndTxn in a version up to 4, or from 5 on.
	v1, v2   *kgo.Client
	settings settings
	logger   *slog.Logger
	// timeoutCap is the broker's transaction.max.timeout.ms; set before ids are initialised.
	timeoutCap time.Duration

	mu     sync.Mutex
	topics map[string]topicInfo
}

type topicInfo struct {
	kafkaconn.Topic
	maxBytes int
}

func newCluster(s settings, logger *slog.Logger) (*cluster, error) {
	c := &cluster{settings: s, logger: logger, timeoutCap: defaultMaxTimeout, topics: map[string]topicInfo{}}
	least := &kversion.Versions{}
	least.SetMaxKeyVersion(int16(kmsg.EndTxn), EndTxnV2)
	for _, client := range []struct {
		to   **kgo.Client
		opts []kgo.Opt
	}{
		{&c.cl, nil},
		{&c.v1, []kgo.Opt{kgo.MaxVersions(transactionsV1())}},
		{&c.v2, []kgo.Opt{kgo.MinVersions(least)}},
	} {
		opts := append([]kgo.Opt{kgo.SeedBrokers(s.brokers...)}, client.opts...)
		opts = append(opts, pointOptions()...)
		cl, err := kgo.NewClient(append(opts, s.options...)...)
		if err != nil {
			c.close()
			return nil, fmt.Errorf("make a Kafka client: %w", err)
		}
		*client.to = cl
	}
	return c, nil
}

func (c *cluster) close() {
	for _, cl := range []*kgo.Client{c.cl, c.v1, c.v2} {
		if cl != nil {
			cl.Close()
		}
	}
}

// reachLimit bounds the first contact.
const reachLimit = 10 * time.Second

func (c *cluster) reach(ctx context.Context) error {
	return kafkaconn.Reach(ctx, c.cl, c.settings.brokers, min(reachLimit, c.settings.deadline))
}

// transactionsV2 reports whether the cluster's finalized feature allows the second transaction protocol. What versions of requests the
// brokers know says nothing: one EndTxn of version 5 makes an id useless where the feature is 0.
func (c *cluster) transactionsV2(ctx context.Context) (bool, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "weir", "1"
	var resp *kmsg.ApiVersionsResponse
	err := c.ask(ctx, answers.Metadata, kafkaconn.Access{}, func() (err error) {
		resp, err = req.RequestWith(ctx, c.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("ask for the cluster's features: %w", err)
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == featureTransactions {
			return f.MaxVersionLevel >= 2, nil
		}
	}
	return false, nil
}

// maxTimeout reads transaction.max.timeout.ms; known is false where that is not allowed.
func (c *cluster) maxTimeout(ctx context.Context) (limit time.Duration, known bool, err error) {
	adm := kadm.NewClient(c.cl)
	tries := 0
	configs, err := c.configs(ctx, func() (kadm.ResourceConfigs, error) {
		meta, err := adm.BrokerMetadata(ctx)
		if err != nil || len(meta.Brokers) == 0 {
			return nil, err
		}
		tries++ // another one each time
		return adm.DescribeBrokerConfigs(ctx, meta.Brokers[tries%len(meta.Brokers)].NodeID)
	})
	for _, r := range configs {
		if ms, ok := intConfig(r, "transaction.max.timeout.ms"); ok {
			return time.Duration(ms) * time.Millisecond, true, nil
		}
	}
	return defaultMaxTimeout, false, err
}

// configs reads settings. There are none, and no error, where a broker does not let us read them.
func (c *cluster) configs(ctx context.Context, read func() (kadm.ResourceConfigs, error)) (configs kadm.ResourceConfigs, err error) {
	err = c.ask(ctx, answers.Metadata, kafkaconn.Access{}, func() (err error) {
		configs, err = read()
		for _, r := range configs {
			err = cmp.Or(err, r.Err)
		}
		return err
	})
	switch answers.React(answers.Metadata, err) {
	case answers.Refused, answers.FailJob:
		c.logger.Warn("cannot read the brokers' settings; taking Kafka's defaults", "error", err)
		return nil, nil
	}
	return configs, err
}

// ask repeats a request while nothing is decided, until ctx ends. The error is that of the last answer.
func (c *cluster) ask(ctx context.Context, s answers.Step, on kafkaconn.Access, request func() error) error {
	var last error
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := request()
		if ctx.Err() == nil || last == nil {
			last = err // what was cut off says less than what came before
		}
		if answers.React(s, err) != answers.Again || !kafkaconn.Sleep(ctx, pause) {
			return answers.Failure(s, last, on)
		}
	}
}

// Pauses before a request is repeated.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

func intConfig(r kadm.ResourceConfig, name string) (int64, bool) {
	for _, kv := range r.Configs {
		if kv.Key == name && kv.Value != nil {
			n, err := strconv.ParseInt(*kv.Value, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// learn makes topics known that must exist.
func (c *cluster) learn(ctx context.Context, names ...string) error {
	found, err := kafkaconn.FindTopics(ctx, c.cl, c.settings.deadline, kafkaconn.Write, names...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.settings.deadline)
	defer cancel()
	configs, err := c.configs(ctx, func() (kadm.ResourceConfigs, error) {
		return kadm.NewClient(c.cl).DescribeTopicConfigs(ctx, names...)
	})
	if err != nil {
		return fmt.Errorf("read the settings of the topics %s: %w", strings.Join(names, ", "), err)
	}
	sizes := map[string]int{}
	for _, r := range configs {
		if n, ok := intConfig(r, "max.message.bytes"); ok {
			sizes[r.Name] = int(n)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, t := range found {
		info := topicInfo{Topic: t, maxBytes: defaultMaxMessage}
		if n, ok := sizes[name]; ok {
			info.maxBytes = n
		}
		c.topics[name] = info
	}
	return nil
}

// topic returns what is known about a topic, asking the first time.
func (c *cluster) topic(ctx context.Context, name string) (topicInfo, error) {
	c.mu.Lock()
	info, ok := c.topics[name]
	c.mu.Unlock()
	if ok {
		return info, nil
	}
	if err := c.learn(ctx, name); err != nil {
		return topicInfo{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.topics[name], nil
}

// maxRecordBytes is ProducerConfig.MaxRecordBytes.
func (c *cluster) maxRecordBytes(topic string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if info, ok := c.topics[topic]; ok {
		return info.maxBytes
	}
	return defaultMaxMessage
}

var errRecreated = errors.New("topic was deleted and created again")

// sameTopics checks that the topics written to are still those that were known when the transaction began, and fills in their ids.
func (c *cluster) sameTopics(ctx context.Context, topics []preparedTopic) error {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	var found map[string]kafkaconn.Topic
	var missing map[string]error
	err := c.ask(ctx, answers.Metadata, kafkaconn.Access{}, func() (err error) {
		found, missing, err = kafkaconn.Topics(ctx, c.cl, names...)
		for _, no := range missing {
			if !errors.Is(no, kafkaconn.ErrNoTopic) {
				err = cmp.Or(err, no)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	for i := range topics {
		t := &topics[i]
		if err := missing[t.Name]; err != nil {
			return err
		}
		known, err := c.topic(ctx, t.Name)
		if err != nil {
			return err
		}
		if found[t.Name].ID != known.ID {
			return fmt.Errorf("%s: %w while a transaction was writing to it (id %s, now %s)", t.Name, errRecreated, known.ID, found[t.Name].ID)
		}
		t.ID = known.ID
	}
	return nil
}
