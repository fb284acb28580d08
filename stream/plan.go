package stream

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/stack"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources"
)

// PlanOptions override what the job function chose.
type PlanOptions struct {
	// Name of the job; empty leaves it to the job.
	Name string
	// DefaultName is used when neither Name nor the job gives one.
	DefaultName string
	// Parallelism of operators that choose none; 0 leaves it to the job.
	Parallelism int
	// Operators holds the parallelism of operators by name or uid, in place of what the job chose for them.
	Operators map[string]int
}

// Plan runs the job function and compiles what it describes. When anything is wrong with the job it returns all of it as
// graph.Errors. It does no I/O.
func Plan(job func(*Env) error, o PlanOptions) (*operator.Program, error) {
	env := newEnv()
	if err := describe(job, env); err != nil {
		return nil, graph.Errors{err}
	}
	if o.Parallelism > 0 {
		env.parallelism = o.Parallelism
	}
	switch {
	case o.Name != "":
		env.name = o.Name
	case env.name == "":
		env.name = o.DefaultName
	}
	p := &planner{env: env, operators: o.Operators, factories: make(map[string]operator.Factory)}
	return p.program()
}

// describe runs the job function; a panic in it is an error of the job.
func describe(job func(*Env) error, env *Env) (err error) {
	defer func() {
		if r := recover(); r != nil {
			trace := stack.Trim(string(debug.Stack()))
			err = fmt.Errorf("the job function panicked: %v, at %s\n%s", r, stack.Origin(trace), trace)
		}
	}()
	return job(env)
}

// planner compiles one job.
type planner struct {
	env       *Env
	operators map[string]int
	errs      graph.Errors
	factories map[string]operator.Factory
}

func (p *planner) program() (*operator.Program, error) {
	assignUIDs(p.env.nodes)
	p.override()
	l := graph.Logical{
		Name: p.env.name, MaxParallelism: p.env.maxParallelism, Parallelism: p.env.parallelism,
		Checkpoints: p.env.checkpoints, Restarts: p.env.restarts,
	}
	for _, n := range p.env.nodes {
		f, errs := n.finish(p)
		for _, err := range errs {
			p.report(n, err)
		}
		if err := checkWatermarks(n); err != nil {
			p.report(n, err)
		}
		p.factories[n.op.UID] = f
		l.Operators = append(l.Operators, n.op)
	}
	ids := assignEdgeIDs(p.env.edges)
	codecErrs := make(map[string]error)
	for i, e := range p.env.edges {
		// A chained edge needs no codec, so one that is missing counts only where records are sent.
		_, codec, err := e.make(e.partitioning)
		codecErrs[ids[i]] = err
		l.Edges = append(l.Edges, graph.Edge{ID: ids[i], From: e.from.op.UID, To: e.to.op.UID, Partitioning: e.partitioning, Codec: codec})
	}
	g, err := l.Compile()
	p.errs = append(p.errs, split(err)...)
	if g == nil {
		return nil, p.errs
	}
	edges := make(map[string]operator.EdgeType, len(g.Edges))
	made := make(map[string]*edge, len(ids))
	for i, id := range ids {
		made[id] = p.env.edges[i]
	}
	for _, e := range g.Edges {
		if err := codecErrs[e.ID]; err != nil {
			p.report(made[e.ID].from, err)
			continue
		}
		if edges[e.ID], _, err = made[e.ID].make(e.Partitioning); err != nil {
			p.report(made[e.ID].from, err)
		}
	}
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	return &operator.Program{Graph: g, Factories: p.factories, Edges: edges}, nil
}

// override gives operators the parallelism that was chosen for them by name.
func (p *planner) override() {
	for _, name := range slices.Sorted(maps.Keys(p.operators)) {
		found := false
		for _, n := range p.env.nodes {
			if n.op.Name == name || n.op.UID == name {
				n.op.Parallelism, found = p.operators[name], true
			}
		}
		if !found {
			var names []string
			for _, n := range p.env.nodes {
				names = append(names, n.op.Name)
			}
			p.errs = append(p.errs, fmt.Errorf("no operator is called %q, so it cannot be given a parallelism; there are %s", name, strings.Join(names, ", ")))
		}
	}
}

func (p *planner) report(n *node, err error) {
	p.errs = append(p.errs, &graph.Error{Operator: n.op.Name, Detail: err.Error(), Err: err})
}

// jobSettings returns what a connector checks itself against.
func (p *planner) jobSettings(n *node, g graph.Guarantee) sources.JobSettings {
	parallelism := n.op.Parallelism
	if parallelism == 0 {
		parallelism = max(p.env.parallelism, 1)
	}
	return sources.JobSettings{Checkpoints: p.env.checkpoints, Parallelism: parallelism, Guarantee: g}
}

// assignUIDs gives every operator a uid and a name. A stateful operator without a name is called after the nearest named operator
// above it; where that is ambiguous it stays unnamed, which the graph refuses.
func assignUIDs(nodes []*node) {
	derived := make(map[string][]*node)
	for _, n := range nodes {
		if n.op.Stateful && !n.op.NamedByUser {
			uid := namedAbove(n) + "-" + n.op.Kind
			derived[uid] = append(derived[uid], n)
		}
	}
	counts := make(map[string]int)
	for _, n := range nodes {
		counts[n.op.Kind]++
		if n.op.NamedByUser {
			continue
		}
		n.op.UID = fmt.Sprintf("%s-%d", n.op.Kind, counts[n.op.Kind])
	}
	for uid, ns := range derived {
		if len(ns) == 1 {
			ns[0].op.UID, ns[0].op.NamedByUser = uid, true
		}
	}
	for _, n := range nodes {
		if n.op.UID == "" {
			n.op.UID = n.op.Name
		}
		if n.op.Name == "" {
			n.op.Name = n.op.UID
		}
	}
}

// namedAbove returns the name of the nearest operator above n that was named, along first inputs.
func namedAbove(n *node) string {
	for len(n.inputs) > 0 {
		n = n.inputs[0].from
		if n.op.NamedByUser {
			if n.op.UID != "" {
				return n.op.UID
			}
			return n.op.Name
		}
	}
	return "unnamed"
}

// assignEdgeIDs returns an id for each edge: its ends, and a number where two operators are connected twice.
func assignEdgeIDs(edges []*edge) []string {
	seen := make(map[string]int)
	ids := make([]string, len(edges))
	for i, e := range edges {
		id := e.from.op.UID + "->" + e.to.op.UID
		seen[id]++
		if n := seen[id]; n > 1 {
			id = fmt.Sprintf("%s#%d", id, n)
		}
		ids[i] = id
	}
	return ids
}

// checkWatermarks returns an error when n waits for event time and some input of it has none.
func checkWatermarks(n *node) error {
	if !n.needsWatermarks {
		return nil
	}
	seen := make(map[*node]bool)
	var find func(n *node) *node
	find = func(n *node) *node {
		for _, e := range n.inputs {
			from := e.from
			if from.watermarks || seen[from] {
				continue
			}
			seen[from] = true
			if len(from.inputs) == 0 {
				return from
			}
			if without := find(from); without != nil {
				return without
			}
		}
		return nil
	}
	if without := find(n); without != nil {
		return fmt.Errorf("its windows are of event time, and source %q has no watermarks: call WithWatermarks on it, or InProcessingTime on the window", without.op.Name)
	}
	return nil
}
