package demo

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/weir-stream/weir/internal/orders"
)

// broker is where the topics are: a Kafka of the user's, or one embedded in this process.
type broker struct {
	addresses []string
	embedded  *kfake.Cluster
}

func openBroker(addresses []string) (*broker, error) {
	if len(addresses) > 0 {
		return &broker{addresses: addresses}, nil
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(orders.Partitions))
	if err != nil {
		return nil, fmt.Errorf("start the embedded broker: %w", err)
	}
	return &broker{addresses: c.ListenAddrs(), embedded: c}, nil
}

func (b *broker) close() {
	if b.embedded != nil {
		b.embedded.Close()
	}
}
