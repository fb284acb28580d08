package stream

import (
	"fmt"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
)

// node is an operator being described.
type node struct {
	op     graph.Operator
	inputs []*edge
	// finish resolves what depends on the whole job and returns how to build the operator. Errors in the description are reported
	// all together.
	finish func(p *planner) (operator.Factory, graph.Errors)
	// outCodec is the codec chosen for the output, a codec.Codec[T]; nil for the default one.
	outCodec any
	// watermarks: the node makes its own; needsWatermarks: without them it would never emit anything.
	watermarks, needsWatermarks bool
}

// edge is a connection being described.
type edge struct {
	from, to     *node
	partitioning graph.Partitioning
	// make returns the edge's implementation and what identifies its codecs, once the partitioning is known.
	make func(p graph.Partitioning) (operator.EdgeType, string, error)
}

// add adds an operator to the job.
func (e *Env) add(n *node) *node {
	e.nodes = append(e.nodes, n)
	return n
}

// connect adds an edge whose partitioning follows from the parallelism of its ends.
func connect[T any](s *Stream[T], to *node) {
	from := s.node
	link(s.env, &edge{from: from, to: to, make: func(p graph.Partitioning) (operator.EdgeType, string, error) {
		c, err := outputCodec[T](from)
		if err != nil {
			return nil, "", err
		}
		return operator.NewEdge(p, c), codecID(c), nil
	}})
}

// connectKeyed adds an edge that brings records of one key to one subtask.
func connectKeyed[K comparable, T any](s *KeyedStream[K, T], to *node) {
	from := s.stream.node
	link(s.stream.env, &edge{from: from, to: to, partitioning: graph.Hash, make: func(graph.Partitioning) (operator.EdgeType, string, error) {
		c, err := outputCodec[T](from)
		if err != nil {
			return nil, "", err
		}
		kc, err := s.keyCodec()
		if err != nil {
			return nil, "", err
		}
		return operator.NewHashEdge(c, s.key, kc), kc.ID() + " " + codecID(c), nil
	}})
}

func link(env *Env, e *edge) {
	e.to.inputs = append(e.to.inputs, e)
	env.edges = append(env.edges, e)
}

// outputCodec returns the codec of a node's output.
func outputCodec[T any](n *node) (codec.Codec[T], error) {
	if n.outCodec != nil {
		return n.outCodec.(codec.Codec[T]), nil
	}
	c, err := codec.For[T]()
	if err != nil {
		return nil, fmt.Errorf("its output, %T, has no codec: %w; choose one with WithCodec", *new(T), err)
	}
	return c, nil
}

func codecID[T any](c codec.Codec[T]) string { return fmt.Sprintf("%s#%x", c.ID(), c.Fingerprint()) }
