package graph_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/graph"
)

func TestWireFormKeepsWhatTheClusterNeeds(t *testing.T) {
	g := compile(t, orders())
	data, err := proto.Marshal(graph.ToProto(g))
	require.NoError(t, err)
	var pb jobv1.Graph
	require.NoError(t, proto.Unmarshal(data, &pb))
	back, err := graph.FromProto(&pb)
	require.NoError(t, err)
	want := *g
	want.Chained = nil
	for i := range want.Vertices {
		for j := range want.Vertices[i].Operators {
			o := &want.Vertices[i].Operators[j]
			o.NamedByUser, o.Sink = false, false
		}
	}
	require.Empty(t, cmp.Diff(&want, back))
}

func TestWireFormNumbersAgree(t *testing.T) {
	require.EqualValues(t, jobv1.Partitioning_PARTITIONING_FORWARD, graph.Forward)
	require.EqualValues(t, jobv1.Partitioning_PARTITIONING_HASH, graph.Hash)
	require.EqualValues(t, jobv1.Partitioning_PARTITIONING_REBALANCE, graph.Rebalance)
	require.EqualValues(t, jobv1.Partitioning_PARTITIONING_BROADCAST, graph.Broadcast)
	require.EqualValues(t, jobv1.Guarantee_GUARANTEE_UNSPECIFIED, graph.GuaranteeDefault)
	require.EqualValues(t, jobv1.Guarantee_GUARANTEE_NONE, graph.None)
	require.EqualValues(t, jobv1.Guarantee_GUARANTEE_AT_LEAST_ONCE, graph.AtLeastOnce)
	require.EqualValues(t, jobv1.Guarantee_GUARANTEE_EXACTLY_ONCE, graph.ExactlyOnce)
}

func TestMalformedWireFormsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*jobv1.Graph){
		"empty vertex":    func(g *jobv1.Graph) { g.Vertices[0].Operators = nil },
		"no parallelism":  func(g *jobv1.Graph) { g.Vertices[0].Parallelism = 0 },
		"above maximum":   func(g *jobv1.Graph) { g.Vertices[0].Parallelism = 999 },
		"repeated vertex": func(g *jobv1.Graph) { g.Vertices[1].Id = g.Vertices[0].Id },
		"dangling edge":   func(g *jobv1.Graph) { g.Edges[0].ToVertex = "nowhere" },
	} {
		t.Run(name, func(t *testing.T) {
			pb := graph.ToProto(compile(t, orders()))
			change(pb)
			_, err := graph.FromProto(pb)
			require.ErrorIs(t, err, graph.ErrWireForm)
		})
	}
}
