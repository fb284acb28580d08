// Package stream is how a job is written: a typed dataflow from sources to sinks, compiled to a job graph.
//
//	func main() { stream.Main(job) }
//
//	func job(env *stream.Env) error {
//		words := stream.From(env, "words", source)
//		upper := stream.Map(words, strings.ToUpper)
//		stream.To(upper, "out", sink)
//		return nil
//	}
//
// What keeps the record type is a method, what changes it a generic function. The job function only describes: it is run in the plan
// and in every worker, must always describe the same job for the same arguments, and does no I/O.
//
// # Names
//
// Each operator has a uid by which its state is found again after the job has changed. It is the name: that given to [From] and
// [To], or with [Stream.Named]. A stateful operator without a name is called after the nearest named operator above it and its kind,
// "orders-window"; where two would get one name, both need names of their own.
//
// # User functions
//
// User functions are called from one goroutine per subtask. They must not modify a record they were given or have returned, nor
// share what they change with others. An error, like a panic, fails the task and restarts the job from its last checkpoint.
//
// # Guarantees
//
// With checkpoints, which are on by default, a sink is exactly-once unless it or [Output.WithGuarantee] says otherwise. A sink that
// cannot give the guarantee is an error of the plan, never a silent downgrade.
package stream
