package graph

import (
	"errors"
	"fmt"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

// ToProto returns the graph's wire form. The partitionings and guarantees of this package are numbered as the wire form's.
func ToProto(g *Graph) *jobv1.Graph {
	pb := &jobv1.Graph{
		Name:           g.Name,
		MaxParallelism: uint32(g.MaxParallelism),
		Checkpoints: &jobv1.CheckpointConfig{
			Enabled:           g.Checkpoints.Enabled,
			IntervalMs:        uint64(g.Checkpoints.Interval.Milliseconds()),
			TimeoutMs:         uint64(g.Checkpoints.Timeout.Milliseconds()),
			MinPauseMs:        uint64(g.Checkpoints.MinPause.Milliseconds()),
			ToleratedFailures: uint32(g.Checkpoints.ToleratedFailures),
			Retained:          uint32(g.Checkpoints.Retained),
			RecoveryBudgetMs:  uint64(g.Checkpoints.RecoveryBudget.Milliseconds()),
		},
		Restarts: &jobv1.RestartPolicy{
			InitialDelayMs: uint64(g.Restarts.InitialDelay.Milliseconds()),
			MaxDelayMs:     uint64(g.Restarts.MaxDelay.Milliseconds()),
			Multiplier:     g.Restarts.Multiplier,
			MaxRestarts:    uint32(g.Restarts.MaxRestarts),
			WindowMs:       uint64(g.Restarts.Window.Milliseconds()),
		},
		Fingerprint: g.Fingerprint, TransactionsCommand: true,
	}
	for _, v := range g.Vertices {
		pv := &jobv1.Vertex{Id: v.ID, Parallelism: uint32(v.Parallelism), Source: v.Source}
		for _, o := range v.Operators {
			pv.Operators = append(pv.Operators, &jobv1.Operator{
				Uid: o.UID, Name: o.Name, Kind: o.Kind, Stateful: o.Stateful, Codecs: o.Codecs,
				Guarantee: jobv1.Guarantee(o.Guarantee), TransactionSlots: uint32(o.TransactionSlots), DurableOutput: o.DurableOutput,
			})
		}
		pb.Vertices = append(pb.Vertices, pv)
	}
	for _, e := range g.Edges {
		pb.Edges = append(pb.Edges, &jobv1.Edge{
			Id: e.ID, FromVertex: e.FromVertex, FromOperator: e.FromOperator, ToVertex: e.ToVertex, ToOperator: e.ToVertex,
			Partitioning: jobv1.Partitioning(e.Partitioning), Codec: e.Codec,
		})
	}
	return pb
}

// ErrWireForm is returned by [FromProto] for a graph that no plan can have written.
var ErrWireForm = errors.New("malformed job graph")

// FromProto returns the graph of a wire form. What only the plan needs is not in it: Chained, and of operators NoChain,
// NamedByUser, Resource and Sink.
func FromProto(pb *jobv1.Graph) (*Graph, error) {
	g := &Graph{
		Name: pb.GetName(), MaxParallelism: int(pb.GetMaxParallelism()), Fingerprint: pb.GetFingerprint(),
		Checkpoints: CheckpointConfig{
			Enabled:           pb.GetCheckpoints().GetEnabled(),
			Interval:          milliseconds(pb.GetCheckpoints().GetIntervalMs()),
			Timeout:           milliseconds(pb.GetCheckpoints().GetTimeoutMs()),
			MinPause:          milliseconds(pb.GetCheckpoints().GetMinPauseMs()),
			ToleratedFailures: int(pb.GetCheckpoints().GetToleratedFailures()),
			Retained:          int(pb.GetCheckpoints().GetRetained()),
			RecoveryBudget:    milliseconds(pb.GetCheckpoints().GetRecoveryBudgetMs()),
		},
		Restarts: RestartPolicy{
			InitialDelay: milliseconds(pb.GetRestarts().GetInitialDelayMs()),
			MaxDelay:     milliseconds(pb.GetRestarts().GetMaxDelayMs()),
			Multiplier:   pb.GetRestarts().GetMultiplier(),
			MaxRestarts:  int(pb.GetRestarts().GetMaxRestarts()),
			Window:       milliseconds(pb.GetRestarts().GetWindowMs()),
		},
	}
	known := make(map[string]bool)
	for _, pv := range pb.GetVertices() {
		v := Vertex{ID: pv.GetId(), Parallelism: int(pv.GetParallelism()), Source: pv.GetSource()}
		if len(pv.GetOperators()) == 0 || v.Parallelism < 1 || v.Parallelism > g.MaxParallelism || known[v.ID] {
			return nil, fmt.Errorf("%w: vertex %q is empty, repeated or of parallelism %d", ErrWireForm, v.ID, v.Parallelism)
		}
		known[v.ID] = true
		for i, po := range pv.GetOperators() {
			v.Operators = append(v.Operators, Operator{
				UID: po.GetUid(), Name: po.GetName(), Kind: po.GetKind(), Parallelism: v.Parallelism, Source: v.Source && i == 0,
				Stateful: po.GetStateful(), Codecs: po.GetCodecs(), Guarantee: Guarantee(po.GetGuarantee()),
				TransactionSlots: int(po.GetTransactionSlots()), DurableOutput: po.GetDurableOutput(),
			})
		}
		g.Vertices = append(g.Vertices, v)
	}
	for _, pe := range pb.GetEdges() {
		if !known[pe.GetFromVertex()] || !known[pe.GetToVertex()] {
			return nil, fmt.Errorf("%w: edge %q leads from or to an unknown vertex", ErrWireForm, pe.GetId())
		}
		g.Edges = append(g.Edges, VertexEdge{
			ID: pe.GetId(), FromVertex: pe.GetFromVertex(), FromOperator: pe.GetFromOperator(), ToVertex: pe.GetToVertex(),
			Partitioning: Partitioning(pe.GetPartitioning()), Codec: pe.GetCodec(),
		})
	}
	return g, nil
}

func milliseconds(ms uint64) time.Duration { return time.Duration(ms) * time.Millisecond }
