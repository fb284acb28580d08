package graph

// Compile checks the graph and chains its operators into vertices. When anything is wrong it returns all of it as [Errors].
//
// An operator joins the vertex of its upstream operator when that is its only input, the edge is Forward, both have the same
// parallelism and the operator does not ask for a vertex of its own.
func (l *Logical) Compile() (*Graph, error) {
	n := l.normalized()
	if errs := n.validate(); len(errs) > 0 {
		return nil, errs
	}
	g := &Graph{
		Name: n.Name, MaxParallelism: n.MaxParallelism,
		Checkpoints: n.Checkpoints, Restarts: n.Restarts,
	}
	inputs := make(map[string][]Edge)
	for _, e := range n.Edges {
		inputs[e.To] = append(inputs[e.To], e)
	}
	vertexOf := make(map[string]int) // operator uid to index in g.Vertices
	chained := make(map[string]bool) // edge ids
	for _, i := range n.order() {
		o := n.Operators[i]
		if in := inputs[o.UID]; len(in) == 1 && in[0].Partitioning == Forward && !o.NoChain {
			v := vertexOf[in[0].From]
			vertexOf[o.UID] = v
			chained[in[0].ID] = true
			g.Vertices[v].Operators = append(g.Vertices[v].Operators, o)
			continue
		}
		vertexOf[o.UID] = len(g.Vertices)
		g.Vertices = append(g.Vertices, Vertex{ID: o.UID, Parallelism: o.Parallelism, Operators: []Operator{o}, Source: o.Source})
	}
	for _, e := range n.Edges {
		if chained[e.ID] {
			g.Chained = append(g.Chained, e)
			continue
		}
		g.Edges = append(g.Edges, VertexEdge{
			ID: e.ID, FromVertex: g.Vertices[vertexOf[e.From]].ID, FromOperator: e.From, ToVertex: e.To,
			Partitioning: e.Partitioning, Codec: e.Codec,
		})
	}
	g.Fingerprint = g.fingerprint()
	return g, nil
}
