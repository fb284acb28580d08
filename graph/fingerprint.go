package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strings"
)

// fingerprint identifies what a plan and the worker that carries it out must agree on: uids, kinds, parallelism, codecs, guarantees,
// chains and edges. Names, settings of connectors, checkpoints and restarts, and the order of declaration are not in it.
//
// The form is versioned by its first line; the JobManager compares it as a text.
func (g *Graph) fingerprint() string {
	h := sha256.New()
	field(h, "weir-graph-1", fmt.Sprint(g.MaxParallelism))
	vertices := slices.Clone(g.Vertices)
	slices.SortFunc(vertices, func(a, b Vertex) int { return strings.Compare(a.ID, b.ID) })
	for _, v := range vertices {
		field(h, "vertex", v.ID, fmt.Sprint(v.Parallelism))
		ops := slices.Clone(v.Operators)
		slices.SortFunc(ops, func(a, b Operator) int { return strings.Compare(a.UID, b.UID) })
		for _, o := range ops {
			field(h, "operator", o.UID, o.Kind, fmt.Sprint(o.Source, o.Sink, o.Stateful, o.Guarantee))
			field(h, o.Codecs...)
		}
	}
	var edges [][]string
	for _, e := range g.Chained {
		edges = append(edges, []string{"chained", e.ID, e.From, e.To, fmt.Sprint(e.Partitioning), e.Codec})
	}
	for _, e := range g.Edges {
		edges = append(edges, []string{"edge", e.ID, e.FromOperator, e.ToVertex, fmt.Sprint(e.Partitioning), e.Codec})
	}
	slices.SortFunc(edges, slices.Compare)
	for _, e := range edges {
		field(h, e...)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// field writes a line of texts such that no two different lines have the same bytes.
func field(h hash.Hash, texts ...string) {
	fmt.Fprintf(h, "%d", len(texts))
	for _, t := range texts {
		fmt.Fprintf(h, " %d:%s", len(t), t)
	}
	fmt.Fprintln(h)
}
