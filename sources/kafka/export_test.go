package kafkasource

import "github.com/twmb/franz-go/pkg/kgo"

var kgoBroker kgo.BrokerMetadata

func fetchMetrics(compressed, uncompressed, records int) kgo.FetchBatchMetrics {
	return kgo.FetchBatchMetrics{NumRecords: records, UncompressedBytes: uncompressed, CompressedBytes: compressed}
}
