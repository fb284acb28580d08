package stream

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/ingest"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sources"
)

// From adds a source.
func From[T any](env *Env, name string, src sources.Source[T]) *Stream[T] {
	cfg := &ingest.Config[T]{Source: src}
	n := env.add(&node{op: graph.Operator{
		Kind: "source", Name: name, NamedByUser: name != "", Source: true, Stateful: true,
	}})
	n.finish = func(p *planner) (operator.Factory, graph.Errors) {
		if src == nil {
			return nil, graph.Errors{errNoConnector}
		}
		n.op.Kind = "source " + src.Kind()
		return ingest.New(*cfg), split(src.Validate(p.jobSettings(n, graph.GuaranteeDefault)))
	}
	return &Stream[T]{env: env, node: n, source: cfg}
}

// Output is the end of a stream in a sink.
type Output struct {
	node      *node
	guarantee Guarantee
}

// To ends a stream in a sink.
func To[T any](s *Stream[T], name string, sink sinks.Sink[T]) *Output {
	out := &Output{}
	n := s.env.add(&node{op: graph.Operator{
		Kind: "sink", Name: name, NamedByUser: name != "", Sink: true, Stateful: true,
	}})
	n.finish = func(p *planner) (operator.Factory, graph.Errors) { return finishSink[T](p, n, sink, out.guarantee) }
	connect(s, n)
	out.node = n
	return out
}

// UID sets the uid by which the sink's transactions are found again, apart from its name.
func (o *Output) UID(uid string) *Output {
	o.node.op.UID, o.node.op.NamedByUser = uid, true
	return o
}

// Parallelism sets the sink's number of subtasks; the default is the job's.
func (o *Output) Parallelism(n int) *Output {
	o.node.op.Parallelism = n
	return o
}

// NoChain makes the sink run in a task of its own instead of its upstream operator's.
func (o *Output) NoChain() *Output {
	o.node.op.NoChain = true
	return o
}

// WithGuarantee sets the sink's delivery guarantee. The default is the one the sink was made for, and for a sink that leaves it open
// exactly-once when checkpoints are on, else none.
func (o *Output) WithGuarantee(g Guarantee) *Output {
	o.guarantee = g
	return o
}

var (
	errNoConnector      = errors.New("it has no connector: the value given is nil")
	errNegativeLateness = errors.New("its lateness is negative")
	errGuarantee        = errors.New("guarantee not supported")
)

// finishSink resolves a sink's guarantee and checks the sink against it.
func finishSink[T any](p *planner, n *node, sink sinks.Sink[T], g Guarantee) (operator.Factory, graph.Errors) {
	if sink == nil {
		return nil, graph.Errors{errNoConnector}
	}
	n.op.Kind = "sink " + sink.Kind()
	if g == graph.GuaranteeDefault {
		g = sink.Guarantee()
	}
	if g == graph.GuaranteeDefault {
		g = graph.None
		if p.env.checkpoints.Enabled {
			g = graph.ExactlyOnce
		}
	}
	n.op.Guarantee = g
	if !sink.Supports(g) {
		return nil, graph.Errors{unsupported(sink.Kind(), g, sink.Supports)}
	}
	job := p.jobSettings(n, g)
	n.op.Resource = sink.Resource()
	if g == graph.ExactlyOnce {
		n.op.TransactionSlots = sink.TransactionSlots(job)
		if d, ok := sink.(interface{ DurableOutput() bool }); ok {
			n.op.DurableOutput = d.DurableOutput()
		}
	}
	if errs := split(sink.Validate(job)); len(errs) > 0 {
		return nil, errs
	}
	// A sink's record type is not in its method set, so the compiler cannot compare it with the stream's.
	instance, err := sink.NewInstance(g)
	if err != nil {
		return nil, split(err)
	}
	if _, ok := instance.Input().(operator.Collector[T]); !ok {
		return nil, graph.Errors{fmt.Errorf("the %s sink does not take records of type %T", sink.Kind(), *new(T))}
	}
	return operator.FactoryFunc(func([]any) (operator.Instance, error) { return sink.NewInstance(g) }), nil
}

func unsupported(kind string, g Guarantee, supports func(Guarantee) bool) error {
	var others []string
	for _, o := range []struct {
		g    Guarantee
		call string
	}{{graph.ExactlyOnce, "stream.ExactlyOnce"}, {graph.AtLeastOnce, "stream.AtLeastOnce"}, {graph.None, "stream.None"}} {
		if supports(o.g) {
			others = append(others, "WithGuarantee("+o.call+")")
		}
	}
	return fmt.Errorf("%w: the %s sink cannot be %s; choose %s", errGuarantee, kind, guaranteeName(g), strings.Join(others, " or "))
}

func guaranteeName(g Guarantee) string {
	switch g {
	case graph.ExactlyOnce:
		return "exactly-once"
	case graph.AtLeastOnce:
		return "at-least-once"
	case graph.None:
		return "without guarantee"
	default:
		return fmt.Sprintf("of guarantee %d", g)
	}
}

// split returns the single errors of a joined one, and any other as it is: an error that wraps two and adds words of its own is one.
func split(err error) graph.Errors {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.Join(joined.Unwrap()...).Error() != err.Error() {
		return graph.Errors{err}
	}
	var all graph.Errors
	for _, e := range joined.Unwrap() {
		all = append(all, split(e)...)
	}
	return all
}
