package kafkasink_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/graph"
	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	"github.com/weir-stream/weir/sources"
)

func TestValidateReportsAllProblems(t *testing.T) {
	job := sources.JobSettings{
		Guarantee:   graph.ExactlyOnce,
		Checkpoints: graph.CheckpointConfig{Enabled: true, Interval: time.Second, Timeout: time.Minute, ToleratedFailures: 3, RecoveryBudget: 2 * time.Minute},
	}
	good := kafkasink.New("a:1, b:2", "t", encodeNumber)
	require.NoError(t, good.Validate(job))
	require.Equal(t, 7, good.TransactionSlots(job))
	require.True(t, good.Supports(graph.ExactlyOnce))

	bad := kafkasink.New(" ", "", encodeNumber, kafkasink.TransactionTimeout(time.Minute), kafkasink.Deadline(0))
	err := bad.Validate(job)
	for _, text := range []string{
		"no brokers", "no topic", "Deadline", "transaction timeout 1m0s is too short", "6m4s",
		"kafkasink.TransactionTimeout", "transaction.max.timeout.ms", "env.SetCheckpoints",
		"Interval", "Timeout", "ToleratedFailures", "RecoveryBudget",
	} {
		require.ErrorContains(t, err, text)
	}
	for _, timeout := range []time.Duration{0, -1} {
		err := kafkasink.New("a:1", "t", encodeNumber, kafkasink.TransactionTimeout(timeout)).Validate(job)
		require.ErrorContains(t, err, "it must be positive")
	}
	job.Guarantee = graph.AtLeastOnce
	require.NoError(t, kafkasink.New("a:1", "t", encodeNumber, kafkasink.TransactionTimeout(time.Second)).Validate(job))
}
