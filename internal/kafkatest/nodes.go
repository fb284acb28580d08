package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weir-stream/weir/internal/loopback"
)

// transactionLog is the topic whose partitions' leaders are the coordinators of transactions.
const transactionLog = "__transaction_state"

// Nodes is a Kafka cluster of several nodes, each with a replica of every topic. Only the first one has a say in who leads; the others
// may die and come back.
type Nodes []*Broker

// StartNodes starts a cluster for one test and closes it at the test's end. Properties and features of the configuration are those of
// every node; Dir, Advertise and Listeners do not make sense here.
func StartNodes(t testing.TB, n int, cfg Config) Nodes {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	nodes := make(Nodes, n)
	t.Cleanup(func() {
		for _, b := range slices.Backward(nodes) {
			if b == nil {
				continue
			}
			if err := b.Close(); err != nil {
				t.Errorf("close a broker: %v", err)
			}
		}
	})
	if err := nodes.start(ctx, cfg); err != nil {
		t.Fatalf("no Kafka cluster: %v", err)
	}
	return nodes
}

func (n Nodes) start(ctx context.Context, cfg Config) error {
	ports, err := loopback.FreePorts(1)
	if err != nil {
		return err
	}
	replicas := strconv.Itoa(len(n))
	props := map[string]string{
		"default.replication.factor":               replicas,
		"offsets.topic.replication.factor":         replicas,
		"transaction.state.log.replication.factor": replicas,
		"auto.leader.rebalance.enable":             "false", // leaders are where a test puts them
	}
	maps.Copy(props, cfg.Properties)
	cfg.Properties = props
	if cfg.Heap == "" {
		cfg.Heap = "256m"
	}
	cfg.controller = loopback.Address(ports[0])
	errs := make([]error, len(n))
	var wg sync.WaitGroup
	for i := range n {
		of := cfg
		of.node = i + 1
		start := func() { n[i], errs[i] = Start(ctx, of) }
		if i == 0 {
			if start(); errs[0] != nil {
				return errs[0]
			}
			continue
		}
		wg.Go(start)
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Coordinate makes a node the coordinator of all transactions; it needs one transactional id that is known to the cluster. With alone
// set the transaction log has no other replica: when the node dies there is no coordinator any more.
func (n Nodes) Coordinate(ctx context.Context, by *Broker, alone bool) error {
	to := int32(by.cfg.node)
	return n[0].admin(func(adm *kadm.Client) error {
		topics, err := adm.ListTopicsWithInternal(ctx, transactionLog)
		if err == nil {
			err = topics.Error()
		}
		if err != nil {
			return wrap("find the coordinators", err)
		}
		var want kadm.AlterPartitionAssignmentsReq
		moved := kadm.TopicsSet{}
		for _, p := range topics[transactionLog].Partitions {
			replicas := []int32{to}
			for _, r := range p.Replicas {
				if r != to && !alone {
					replicas = append(replicas, r)
				}
			}
			want.Assign(transactionLog, p.Partition, replicas)
			moved.Add(transactionLog, p.Partition)
		}
		assigned, err := adm.AlterPartitionAssignments(ctx, want)
		if err == nil {
			err = assigned.Error()
		}
		if err != nil {
			return wrap("assign the transaction log", err)
		}
		return n.awaitCoordinator(ctx, adm, to, alone, moved)
	})
}

// awaitCoordinator elects the preferred leaders until all partitions have the wanted one.
func (n Nodes) awaitCoordinator(ctx context.Context, adm *kadm.Client, to int32, alone bool, moved kadm.TopicsSet) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, moved); err != nil {
			return wrap("elect coordinators", err)
		}
		topics, err := adm.ListTopicsWithInternal(ctx, transactionLog)
		if err != nil {
			return wrap("find the coordinators", err)
		}
		there := true
		for _, p := range topics[transactionLog].Partitions {
			there = there && p.Leader == to && (!alone || len(p.Replicas) == 1)
		}
		if there {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("move the coordinators to node %d: %w", to, ctx.Err())
		case <-tick.C:
		}
	}
}
