package peers

import (
	"context"
	_ "embed"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weir-stream/weir/internal/kafkatest"
)

//go:embed kafkastreams/pom.xml
var streamsPOM []byte

//go:embed kafkastreams/StreamsApp.java
var streamsApp []byte

func kafkaStreams(ctx context.Context, dir string) (*Engine, error) {
	s, err := load(ctx, dir, "kafkastreams", streamsPOM, "StreamsApp.java", streamsApp)
	if err != nil {
		return nil, err
	}
	return &Engine{
		Name: "kafka-streams", Version: "Kafka Streams " + version(streamsPOM, "kafka-streams"), software: s,
		workloads: []string{"passthrough", "window-count", "running-count"}, start: startKafkaStreams,
	}, nil
}

// startKafkaStreams starts one process. What topics it has made for itself are deleted at the end.
func startKafkaStreams(ctx context.Context, s *software, j Job) (*Run, error) {
	id := j.Out + "-application"
	r := &Run{dir: j.Dir, clean: func() error { return deleteTopics(context.WithoutCancel(ctx), j.Broker, id+"-") }}
	err := r.launch(s, "Kafka Streams", "-Xms1792m", "-Xmx1792m", "weir.bench.StreamsApp", j.Workload, j.Broker.Addr(), j.In, j.Out, id,
		strconv.FormatInt(j.Interval.Milliseconds(), 10), strconv.Itoa(j.Partitions), filepath.Join(j.Dir, "state"))
	if err != nil {
		return nil, err
	}
	return r, nil
}

func deleteTopics(ctx context.Context, b *kafkatest.Broker, prefix string) error {
	client, err := b.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	var own []string
	for _, name := range topics.Names() {
		if strings.HasPrefix(name, prefix) {
			own = append(own, name)
		}
	}
	if len(own) == 0 {
		return nil
	}
	deleted, err := admin.DeleteTopics(ctx, own...)
	if err != nil {
		return err
	}
	return deleted.Error()
}
