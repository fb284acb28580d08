package graph_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/graph"
)

func checkpoints() graph.CheckpointConfig {
	return graph.CheckpointConfig{Enabled: true, Interval: time.Second, Timeout: time.Minute, ToleratedFailures: 3, Retained: 3, RecoveryBudget: 2 * time.Minute}
}

// orders is source -> filter -> (hash) window -> sink.
func orders() graph.Logical {
	return graph.Logical{
		Name: "orders", Parallelism: 2, Checkpoints: checkpoints(),
		Operators: []graph.Operator{
			{UID: "orders", Name: "orders", Kind: "source", Source: true, Stateful: true, NamedByUser: true},
			{UID: "filter-1", Name: "filter-1", Kind: "filter"},
			{UID: "totals", Name: "totals", Kind: "window", Stateful: true, NamedByUser: true, Codecs: []string{"string", "int64"}},
			{UID: "out", Name: "out", Kind: "sink", Sink: true, Stateful: true, NamedByUser: true, Guarantee: graph.ExactlyOnce},
		},
		Edges: []graph.Edge{
			{ID: "orders->filter-1", From: "orders", To: "filter-1", Codec: "msgpack"},
			{ID: "filter-1->totals", From: "filter-1", To: "totals", Partitioning: graph.Hash, Codec: "msgpack"},
			{ID: "totals->out", From: "totals", To: "out", Codec: "msgpack"},
		},
	}
}

func compile(t require.TestingT, l graph.Logical) *graph.Graph {
	g, err := l.Compile()
	require.NoError(t, err)
	return g
}

func vertexIDs(g *graph.Graph) [][]string {
	var ids [][]string
	for _, v := range g.Vertices {
		var chain []string
		for _, o := range v.Operators {
			chain = append(chain, o.UID)
		}
		ids = append(ids, chain)
	}
	return ids
}

func TestForwardEdgesChain(t *testing.T) {
	l := orders()
	g := compile(t, l)
	require.Equal(t, [][]string{{"orders", "filter-1"}, {"totals", "out"}}, vertexIDs(g))
	require.Equal(t, "orders", g.Vertices[0].ID)
	require.True(t, g.Vertices[0].Source)
	require.False(t, g.Vertices[1].Source)
	require.Equal(t, 128, g.MaxParallelism)
	require.Equal(t, []graph.VertexEdge{{
		ID: "filter-1->totals", FromVertex: "orders", FromOperator: "filter-1", ToVertex: "totals", Partitioning: graph.Hash, Codec: "msgpack",
	}}, g.Edges)
	require.Len(t, g.Chained, 2)
	require.Equal(t, graph.Forward, g.Chained[0].Partitioning)
}

func TestWhatKeepsOperatorsApart(t *testing.T) {
	for name, change := range map[string]func(*graph.Logical){
		"another parallelism": func(l *graph.Logical) { l.Operators[1].Parallelism = 3 },
		"NoChain":             func(l *graph.Logical) { l.Operators[1].NoChain = true },
		"a rebalance":         func(l *graph.Logical) { l.Edges[0].Partitioning = graph.Rebalance },
		"a second input": func(l *graph.Logical) {
			l.Operators = append(l.Operators, graph.Operator{UID: "more", Kind: "source", Source: true, Stateful: true, NamedByUser: true})
			l.Edges = append(l.Edges, graph.Edge{ID: "more->filter-1", From: "more", To: "filter-1"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := orders()
			change(&l)
			g := compile(t, l)
			require.Contains(t, vertexIDs(g), []string{"filter-1"})
			i := slices.IndexFunc(g.Edges, func(e graph.VertexEdge) bool { return e.ID == "orders->filter-1" })
			require.GreaterOrEqual(t, i, 0)
			if name == "another parallelism" {
				require.Equal(t, graph.Rebalance, g.Edges[i].Partitioning)
			}
		})
	}
}

func TestAllErrorsAreReportedTogether(t *testing.T) {
	l := graph.Logical{
		MaxParallelism: 4,
		Operators: []graph.Operator{
			{UID: "a", Name: "a", Parallelism: 5, NamedByUser: true},
			{UID: "a", Name: "again", NamedByUser: true},
			{UID: "window-1", Stateful: true},
			{UID: "s1", Sink: true, NamedByUser: true, Resource: "prefix", Guarantee: graph.ExactlyOnce},
			{UID: "s2", Sink: true, NamedByUser: true, Resource: "prefix"},
		},
		Edges: []graph.Edge{
			{ID: "1", From: "a", To: "window-1"},
			{ID: "2", From: "window-1", To: "a"},
			{ID: "3", From: "window-1", To: "s1"},
			{ID: "4", From: "window-1", To: "s2"},
			{ID: "4", From: "nowhere", To: "s2"},
		},
	}
	g, err := l.Compile()
	require.Nil(t, g)
	for _, want := range []error{
		graph.ErrName, graph.ErrParallelism, graph.ErrDuplicateUID, graph.ErrUnnamedState, graph.ErrSharedResource,
		graph.ErrNoCheckpoints, graph.ErrNoSource, graph.ErrCycle, graph.ErrEdge,
	} {
		require.ErrorIs(t, err, want)
	}
	require.NotErrorIs(t, err, graph.ErrNoSink)
	var errs graph.Errors
	require.ErrorAs(t, err, &errs)
	for _, e := range errs {
		var ge *graph.Error
		require.ErrorAs(t, e, &ge)
		require.NotEmpty(t, ge.Detail)
	}
}

func TestEachErrorAlone(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*graph.Logical)
		want     error
		operator string
	}{
		"no name":               {func(l *graph.Logical) { l.Name = "" }, graph.ErrName, ""},
		"duplicate uid":         {func(l *graph.Logical) { l.Operators[1].UID = "orders" }, graph.ErrDuplicateUID, "filter-1"},
		"unnamed state":         {func(l *graph.Logical) { l.Operators[2].NamedByUser = false }, graph.ErrUnnamedState, "totals"},
		"too many subtasks":     {func(l *graph.Logical) { l.Operators[2].Parallelism = 129 }, graph.ErrParallelism, "totals"},
		"negative parallelism":  {func(l *graph.Logical) { l.Operators[2].Parallelism = -1 }, graph.ErrParallelism, "totals"},
		"maximum out of bounds": {func(l *graph.Logical) { l.MaxParallelism = 1 << 20 }, graph.ErrParallelism, ""},
		"no source":             {func(l *graph.Logical) { l.Operators[0].Source = false }, graph.ErrNoSource, ""},
		"no sink":               {func(l *graph.Logical) { l.Operators[3].Sink = false }, graph.ErrNoSink, ""},
		"cycle": {func(l *graph.Logical) {
			l.Edges = append(l.Edges, graph.Edge{ID: "back", From: "totals", To: "filter-1"})
		}, graph.ErrCycle, ""},
		"checkpoints off":        {func(l *graph.Logical) { l.Checkpoints.Enabled = false }, graph.ErrNoCheckpoints, "out"},
		"forward does not fit":   {func(l *graph.Logical) { l.Edges[2].Partitioning = graph.Forward; l.Operators[3].Parallelism = 1 }, graph.ErrEdge, "out"},
		"no input":               {func(l *graph.Logical) { l.Edges = l.Edges[1:] }, graph.ErrEdge, "filter-1"},
		"source with input":      {func(l *graph.Logical) { l.Operators[1].Source = true }, graph.ErrEdge, "filter-1"},
		"interval not positive":  {func(l *graph.Logical) { l.Checkpoints.Interval = 0 }, graph.ErrCheckpoints, ""},
		"no checkpoint retained": {func(l *graph.Logical) { l.Checkpoints.Retained = 0 }, graph.ErrCheckpoints, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := orders()
			c.change(&l)
			_, err := l.Compile()
			require.ErrorIs(t, err, c.want)
			var errs graph.Errors
			require.ErrorAs(t, err, &errs)
			found := slices.ContainsFunc(errs, func(e error) bool {
				var ge *graph.Error
				return errors.As(e, &ge) && errors.Is(ge, c.want) && ge.Operator == c.operator
			})
			require.True(t, found, "no error of operator %q: %v", c.operator, err)
		})
	}
}

func TestFingerprintGolden(t *testing.T) {
	// A change of this value makes every worker of a running job refuse its plan: raise the version in fingerprint first.
	require.Equal(t, "a8ab6fa75379e3c77517e73a85b9a45ef2826d372a49e9e0c8fb638ad990bb0b", compile(t, orders()).Fingerprint)
}

func TestFingerprintIgnoresWhatDoesNotMatter(t *testing.T) {
	want := compile(t, orders()).Fingerprint
	for name, change := range map[string]func(*graph.Logical){
		"job name":    func(l *graph.Logical) { l.Name = "other" },
		"names":       func(l *graph.Logical) { l.Operators[1].Name = "keep the paid ones" },
		"checkpoints": func(l *graph.Logical) { l.Checkpoints.Interval = time.Hour },
		"restarts":    func(l *graph.Logical) { l.Restarts.MaxRestarts = 99 },
		"resource":    func(l *graph.Logical) { l.Operators[3].Resource = "${env:PREFIX}" },
		"slots":       func(l *graph.Logical) { l.Operators[3].TransactionSlots = 9 },
		"order":       func(l *graph.Logical) { slices.Reverse(l.Operators); slices.Reverse(l.Edges) },
	} {
		t.Run(name, func(t *testing.T) {
			l := orders()
			change(&l)
			require.Equal(t, want, compile(t, l).Fingerprint)
		})
	}
}

func TestFingerprintSeesWhatMatters(t *testing.T) {
	seen := map[string]string{compile(t, orders()).Fingerprint: "unchanged"}
	for name, change := range map[string]func(*graph.Logical){
		"uid": func(l *graph.Logical) {
			l.Operators[1].UID, l.Edges[0].To, l.Edges[1].From = "x", "x", "x"
		},
		"kind":            func(l *graph.Logical) { l.Operators[1].Kind = "map" },
		"parallelism":     func(l *graph.Logical) { l.Parallelism = 3 },
		"max parallelism": func(l *graph.Logical) { l.MaxParallelism = 64 },
		"operator codec":  func(l *graph.Logical) { l.Operators[2].Codecs[0] = "bytes" },
		"edge codec":      func(l *graph.Logical) { l.Edges[1].Codec = "proto" },
		"partitioning":    func(l *graph.Logical) { l.Edges[1].Partitioning = graph.Broadcast },
		"chaining":        func(l *graph.Logical) { l.Operators[3].NoChain = true },
		"guarantee":       func(l *graph.Logical) { l.Operators[3].Guarantee = graph.AtLeastOnce },
	} {
		l := orders()
		change(&l)
		f := compile(t, l).Fingerprint
		require.Empty(t, seen[f], "%s has the same fingerprint as %s", name, seen[f])
		seen[f] = name
	}
}

// TestChainingKeepsTopology: whatever the graph, every operator and edge is there once, chains hold what the rules say, and vertices
// come in topological order.
func TestChainingKeepsTopology(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := randomGraph(t)
		g := compile(t, l)
		vertexOf := make(map[string]string)
		position := make(map[string]int)
		for i, v := range g.Vertices {
			require.Equal(t, v.ID, v.Operators[0].UID)
			for j, o := range v.Operators {
				require.Empty(t, vertexOf[o.UID])
				vertexOf[o.UID] = v.ID
				position[o.UID] = i*1000 + j
				require.Equal(t, v.Parallelism, o.Parallelism)
			}
		}
		require.Len(t, vertexOf, len(l.Operators))
		require.Len(t, l.Edges, len(g.Chained)+len(g.Edges))
		inputs := make(map[string]int)
		for _, e := range l.Edges {
			inputs[e.To]++
		}
		for _, e := range g.Chained {
			require.Equal(t, vertexOf[e.From], vertexOf[e.To])
			require.Equal(t, graph.Forward, e.Partitioning)
			require.Equal(t, 1, inputs[e.To])
			require.Less(t, position[e.From], position[e.To])
		}
		for _, e := range g.Edges {
			require.Equal(t, e.FromVertex, vertexOf[e.FromOperator])
			require.Equal(t, e.ToVertex, vertexOf[e.ToVertex], "an edge leads to the head of a vertex")
			require.Less(t, position[e.FromOperator], position[e.ToVertex])
		}
		// The order of declaration changes nothing that matters.
		shuffled := l
		shuffled.Operators = rapid.Permutation(l.Operators).Draw(t, "operators")
		shuffled.Edges = rapid.Permutation(l.Edges).Draw(t, "edges")
		require.Equal(t, g.Fingerprint, compile(t, shuffled).Fingerprint)
	})
}

func randomGraph(t *rapid.T) graph.Logical {
	l := graph.Logical{Name: "random", Parallelism: 1}
	n := rapid.IntRange(2, 12).Draw(t, "operators")
	sources := rapid.IntRange(1, n-1).Draw(t, "sources")
	for i := range n {
		l.Operators = append(l.Operators, graph.Operator{
			UID: fmt.Sprintf("op-%d", i), Kind: "map", Source: i < sources, NamedByUser: true,
			Parallelism: rapid.IntRange(1, 2).Draw(t, "parallelism"), NoChain: rapid.Bool().Draw(t, "nochain"),
		})
		if i < sources {
			continue
		}
		for k := range rapid.IntRange(1, 2).Draw(t, "inputs") {
			from := rapid.IntRange(0, i-1).Draw(t, "from")
			l.Edges = append(l.Edges, graph.Edge{
				ID: fmt.Sprintf("%d->%d#%d", from, i, k), From: fmt.Sprintf("op-%d", from), To: fmt.Sprintf("op-%d", i),
				Partitioning: rapid.SampledFrom([]graph.Partitioning{0, graph.Hash, graph.Rebalance, graph.Broadcast}).Draw(t, "partitioning"),
			})
		}
	}
	hasOutput := make(map[string]bool)
	for _, e := range l.Edges {
		hasOutput[e.From] = true
	}
	for i := range l.Operators {
		l.Operators[i].Sink = !hasOutput[l.Operators[i].UID]
	}
	return l
}
