package stream_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/streamtest"
	"github.com/weir-stream/weir/stream/window"
)

// order is a record of the examples.
type order struct {
	User  string
	Cents int64
	At    time.Time
}

func second(n int) time.Time { return time.Unix(int64(n), 0).UTC() }

func orders() *streamtest.Source[order] {
	return streamtest.Values(
		order{"ann", 100, second(1)}, order{"bob", 250, second(20)}, order{"ann", 300, second(30)},
		order{"ann", 50, second(70)},
	)
}

func at(o order) time.Time { return o.At }

func user(o order) string { return o.User }

// printSorted prints lines in a fixed order: that of the results of one window is not defined.
func printSorted[T any](values []T) {
	var lines []string
	for _, v := range values {
		lines = append(lines, fmt.Sprint(v))
	}
	slices.Sort(lines)
	for _, l := range lines {
		fmt.Println(l)
	}
}

func Example() {
	source := orders()
	sink := streamtest.NewSink[string]()
	job := func(env *stream.Env) error {
		orders := stream.From(env, "orders", source)
		orders = orders.WithWatermarks(at, stream.BoundedOutOfOrder(5*time.Second))
		byUser := stream.KeyBy(orders, user)
		totals := stream.Aggregate(stream.Window(byUser, window.Tumbling(time.Minute)), sumCents{})
		stream.To(totals, "totals", sink)
		return nil
	}
	if err := streamtest.Run(job); err != nil {
		fmt.Println(err)
	}
	printSorted(sink.Values())
	// Output:
	// 00:00 ann 400
	// 00:00 bob 250
	// 00:01 ann 50
}

// sumCents adds up the cents of a user's orders.
type sumCents struct{}

func (sumCents) Add(sum *int64, o order) { *sum += o.Cents }

func (sumCents) Merge(into *int64, from int64) { *into += from }

func (sumCents) Result(user string, w window.Span, sum int64) string {
	return fmt.Sprintf("%s %s %d", w.StartTime().Format("15:04"), user, sum)
}

func ExampleFrom() {
	sink := streamtest.NewSink[int]()
	err := streamtest.Run(func(env *stream.Env) error {
		numbers := stream.From(env, "numbers", streamtest.Values(1, 2, 3))
		stream.To(numbers, "out", sink)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [1 2 3] <nil>
}

func ExampleTo() {
	sink := streamtest.NewSink[int]()
	err := streamtest.Run(func(env *stream.Env) error {
		numbers := stream.From(env, "numbers", streamtest.Values(1, 2, 3))
		// Without WithGuarantee it would be exactly-once, since checkpoints are on.
		stream.To(numbers, "out", sink).Parallelism(1).WithGuarantee(stream.AtLeastOnce)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [1 2 3] <nil>
}

func ExampleMap() {
	sink := streamtest.NewSink[string]()
	err := streamtest.Run(func(env *stream.Env) error {
		words := stream.From(env, "words", streamtest.Values("a", "b"))
		stream.To(stream.Map(words, strings.ToUpper), "out", sink)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [A B] <nil>
}

func ExampleMapErr() {
	sink := streamtest.NewSink[int]()
	err := streamtest.Run(func(env *stream.Env) error {
		texts := stream.From(env, "texts", streamtest.Values("1", "two"))
		stream.To(stream.MapErr(texts, strconv.Atoi), "out", sink)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [] strconv.Atoi: parsing "two": invalid syntax
}

func ExampleFlatMap() {
	sink := streamtest.NewSink[string]()
	err := streamtest.Run(func(env *stream.Env) error {
		lines := stream.From(env, "lines", streamtest.Values("to be or", "not to be"))
		words := stream.FlatMap(lines, func(line string, emit func(string) error) error {
			for _, w := range strings.Fields(line) {
				if err := emit(w); err != nil {
					return err
				}
			}
			return nil
		})
		stream.To(words, "out", sink)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [to be or not to be] <nil>
}

func ExampleStream_Filter() {
	sink := streamtest.NewSink[int]()
	err := streamtest.Run(func(env *stream.Env) error {
		numbers := stream.From(env, "numbers", streamtest.Values(1, 2, 3, 4))
		stream.To(numbers.Filter(func(n int) bool { return n%2 == 0 }), "out", sink)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [2 4] <nil>
}

func ExampleStream_Union() {
	sink := streamtest.NewSink[int]()
	err := streamtest.Run(func(env *stream.Env) error {
		odd := stream.From(env, "odd", streamtest.Values(1, 3))
		even := stream.From(env, "even", streamtest.Values(2, 4))
		stream.To(odd.Union(even), "out", sink)
		return nil
	})
	printSorted(sink.Values())
	fmt.Println(err)
	// Output:
	// 1
	// 2
	// 3
	// 4
	// <nil>
}

func ExampleStream_Named() {
	program, err := stream.Plan(func(env *stream.Env) error {
		numbers := stream.From(env, "numbers", streamtest.Values(1, 2))
		doubled := stream.Map(numbers, func(n int) int { return 2 * n }).Named("double").UID("double-v1").NoChain()
		stream.To(doubled, "out", streamtest.NewSink[int]())
		return nil
	}, stream.PlanOptions{Name: "names"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range program.Graph.Vertices {
		for _, o := range v.Operators {
			fmt.Println(v.ID, o.UID, o.Name)
		}
	}
	// Output:
	// numbers numbers numbers
	// double-v1 double-v1 double
	// double-v1 out out
}

func ExampleStream_WithWatermarks() {
	source := streamtest.NewSource[order](2)
	sink := streamtest.NewSink[string]()
	job, err := streamtest.Start(func(env *stream.Env) error {
		orders := stream.From(env, "orders", source).
			WithWatermarks(at, stream.Monotonous().WithIdleTimeout(10*time.Second))
		totals := stream.Aggregate(stream.Window(stream.KeyBy(orders, user), window.Tumbling(time.Minute)), sumCents{})
		stream.To(totals, "totals", sink).WithGuarantee(stream.None)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer job.Close()

	// The second split has no records: it holds event time back until it has been found empty for ten seconds.
	source.Push(0, order{"ann", 100, second(1)}, order{"ann", 200, second(60)})
	fmt.Println(job.AdvanceTime(9*time.Second), sink.Values())
	fmt.Println(job.AdvanceTime(time.Second), sink.Values())
	// Output:
	// <nil> []
	// <nil> [00:00 ann 100]
}

func ExampleMonotonous() {
	sink := streamtest.NewSink[string]()
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", orders()).WithWatermarks(at, stream.Monotonous())
		totals := stream.Aggregate(stream.Window(stream.KeyBy(orders, user), window.Tumbling(time.Minute)), sumCents{})
		stream.To(totals, "totals", sink)
		return nil
	})
	fmt.Println(len(sink.Values()), err)
	// Output: 3 <nil>
}

func ExampleBoundedOutOfOrder() {
	sink := streamtest.NewSink[string]()
	// The first order is 29 seconds behind the second, which closes the minute: without slack it would be late.
	late := streamtest.Values(order{"ann", 1, second(60)}, order{"ann", 2, second(31)})
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", late).WithWatermarks(at, stream.BoundedOutOfOrder(30*time.Second))
		totals := stream.Aggregate(stream.Window(stream.KeyBy(orders, user), window.Tumbling(time.Minute)), sumCents{})
		stream.To(totals, "totals", sink)
		return nil
	})
	printSorted(sink.Values())
	fmt.Println(err)
	// Output:
	// 00:00 ann 2
	// 00:01 ann 1
	// <nil>
}

func ExampleKeyBy() {
	sink := streamtest.NewSink[string]()
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", orders())
		byUser := stream.KeyBy(orders, user)
		stream.To(stream.Process(byUser, numberOrders).Named("number"), "out", sink)
		return nil
	}, streamtest.Parallelism(2))
	printSorted(sink.Values())
	fmt.Println(err)
	// Output:
	// ann's order 1
	// ann's order 2
	// ann's order 3
	// bob's order 1
	// <nil>
}

// numberOrders counts each user's orders.
func numberOrders(s *stream.States[string]) stream.Handler[string, order, string] {
	count := stream.ValueOf[int](s, "count")
	return stream.Handler[string, order, string]{
		Record: func(c *stream.Context[string, string], _ order) error {
			n, _, err := count.Get()
			if err != nil {
				return err
			}
			if err := count.Put(n + 1); err != nil {
				return err
			}
			return c.Emit(fmt.Sprintf("%s's order %d", c.Key(), n+1))
		},
	}
}

func ExampleProcess() {
	// Users who order nothing for a minute after an order are reported.
	quiet := func(s *stream.States[string]) stream.Handler[string, order, string] {
		last := stream.ValueOf[time.Time](s, "last order")
		return stream.Handler[string, order, string]{
			Record: func(c *stream.Context[string, string], o order) error {
				if before, ok, err := last.Get(); err != nil {
					return err
				} else if ok {
					if err := c.DeleteEventTimer(before.Add(time.Minute)); err != nil {
						return err
					}
				}
				if err := last.Put(o.At); err != nil {
					return err
				}
				return c.SetEventTimer(o.At.Add(time.Minute))
			},
			EventTimer: func(c *stream.Context[string, string], at time.Time) error {
				if err := last.Delete(); err != nil {
					return err
				}
				return c.Emit(fmt.Sprintf("%s is quiet at %s", c.Key(), at.Format("15:04:05")))
			},
		}
	}
	sink := streamtest.NewSink[string]()
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", orders()).WithWatermarks(at, stream.Monotonous())
		stream.To(stream.Process(stream.KeyBy(orders, user), quiet).Named("quiet"), "out", sink)
		return nil
	})
	fmt.Println(strings.Join(sink.Values(), "\n"))
	fmt.Println(err)
	// Output:
	// bob is quiet at 00:01:20
	// ann is quiet at 00:02:10
	// <nil>
}

func ExampleValueOf() {
	sink := streamtest.NewSink[int64]()
	total := func(s *stream.States[string]) stream.Handler[string, order, int64] {
		sum := stream.ValueOf[int64](s, "sum")
		return stream.Handler[string, order, int64]{Record: func(c *stream.Context[string, int64], o order) error {
			before, _, err := sum.Get()
			if err != nil {
				return err
			}
			if err := sum.Put(before + o.Cents); err != nil {
				return err
			}
			return c.Emit(before + o.Cents)
		}}
	}
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", orders())
		stream.To(stream.Process(stream.KeyBy(orders, user), total), "out", sink)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [100 250 400 450] <nil>
}

func ExampleProcessingTimeTTL() {
	setup := func(s *stream.States[string]) stream.Handler[string, string, string] {
		last := stream.ValueOf[string](s, "last").WithTTL(stream.ProcessingTimeTTL(time.Minute).RefreshedByReads())
		return stream.Handler[string, string, string]{Record: func(c *stream.Context[string, string], text string) error {
			if before, ok, err := last.Get(); err != nil || ok {
				return errors.Join(err, c.Emit(text+" after "+before))
			}
			return errors.Join(last.Put(text), c.Emit(text+" after nothing"))
		}}
	}
	p, err := streamtest.NewPipe(func(in *stream.Stream[string]) *stream.Stream[string] {
		return stream.Process(stream.KeyBy(in, func(string) string { return "key" }), setup)
	})
	fmt.Println(err)
	for _, wait := range []time.Duration{0, 50 * time.Second, 50 * time.Second, time.Minute} {
		_ = p.AdvanceTime(wait)
		_ = p.Push(fmt.Sprint(wait))
	}
	for _, r := range p.Take() {
		fmt.Println(r.Value)
	}
	fmt.Println(p.Close())
	// Output:
	// <nil>
	// 0s after nothing
	// 50s after 0s
	// 50s after 0s
	// 1m0s after nothing
	// <nil>
}

func ExampleEventTimeTTL() {
	sink := streamtest.NewSink[string]()
	first := func(s *stream.States[string]) stream.Handler[string, order, string] {
		// Orders of a user within half a minute of the last one are repeats.
		seen := stream.ValueOf[int64](s, "seen").WithTTL(stream.EventTimeTTL(30 * time.Second))
		return stream.Handler[string, order, string]{Record: func(c *stream.Context[string, string], o order) error {
			_, again, err := seen.Get()
			if err != nil {
				return err
			}
			if !again {
				err = c.Emit(c.Key() + " at " + o.At.Format("15:04:05"))
			}
			return errors.Join(err, seen.Put(o.Cents))
		}}
	}
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", orders()).WithWatermarks(at, stream.Monotonous())
		stream.To(stream.Process(stream.KeyBy(orders, user), first), "out", sink)
		return nil
	})
	fmt.Println(strings.Join(sink.Values(), "\n"), err)
	// Output:
	// ann at 00:00:01
	// bob at 00:00:20
	// ann at 00:01:10 <nil>
}

func ExampleMapOf() {
	sink := streamtest.NewSink[string]()
	perMinute := func(s *stream.States[string]) stream.Handler[string, order, string] {
		minutes := stream.MapOf[string, int64](s, "cents by minute")
		return stream.Handler[string, order, string]{Record: func(c *stream.Context[string, string], o order) error {
			minute := o.At.Format("15:04")
			cents, _, err := minutes.Get(minute)
			if err != nil {
				return err
			}
			if err := minutes.Put(minute, cents+o.Cents); err != nil {
				return err
			}
			text := c.Key()
			if err := minutes.Range(func(minute string, cents int64) bool {
				text += fmt.Sprintf(" %s=%d", minute, cents)
				return true
			}); err != nil {
				return err
			}
			return c.Emit(text)
		}}
	}
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", orders())
		stream.To(stream.Process(stream.KeyBy(orders, user), perMinute), "out", sink)
		return nil
	})
	fmt.Println(strings.Join(sink.Values(), "\n"), err)
	// Output:
	// ann 00:00=100
	// bob 00:00=250
	// ann 00:00=400
	// ann 00:00=400 00:01=50 <nil>
}

func ExampleReducingOf() {
	sink := streamtest.NewSink[int64]()
	largest := func(s *stream.States[string]) stream.Handler[string, order, int64] {
		most := stream.ReducingOf(s, "largest order", func(a, b int64) int64 { return max(a, b) }).WithTTL(stream.EventTimeTTL(time.Hour))
		return stream.Handler[string, order, int64]{Record: func(c *stream.Context[string, int64], o order) error {
			if err := most.Add(o.Cents); err != nil {
				return err
			}
			cents, _, err := most.Get()
			if err != nil || cents < 1000 {
				return errors.Join(err, c.Emit(cents))
			}
			return most.Delete()
		}}
	}
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", orders())
		stream.To(stream.Process(stream.KeyBy(orders, user), largest), "out", sink)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [100 250 300 300] <nil>
}

func ExampleMapOf_range() {
	sink := streamtest.NewSink[string]()
	// For each order, what the user spent in the minute before it; older orders are removed.
	lastMinute := func(s *stream.States[string]) stream.Handler[string, order, string] {
		bySecond := stream.MapOf[int64, int64](s, "cents by second").WithTTL(stream.EventTimeTTL(time.Hour))
		return stream.Handler[string, order, string]{Record: func(c *stream.Context[string, string], o order) error {
			now := o.At.Unix()
			if err := bySecond.Put(now, o.Cents); err != nil {
				return err
			}
			var spent int64
			if err := bySecond.RangeFrom(now-59, func(_, cents int64) bool {
				spent += cents
				return true
			}); err != nil {
				return err
			}
			var old []int64
			err := bySecond.RangeBetween(0, now-59, func(second, _ int64) bool {
				old = append(old, second)
				return true
			})
			for _, second := range old {
				err = errors.Join(err, bySecond.Delete(second))
			}
			return errors.Join(err, c.Emit(fmt.Sprint(c.Key(), " ", spent, " removed ", old)))
		}}
	}
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", orders())
		stream.To(stream.Process(stream.KeyBy(orders, user), lastMinute), "out", sink)
		return nil
	})
	fmt.Println(strings.Join(sink.Values(), "\n"), err)
	// Output:
	// ann 100 removed []
	// bob 250 removed []
	// ann 400 removed []
	// ann 350 removed [1] <nil>
}

func ExampleListOf() {
	sink := streamtest.NewSink[string]()
	history := func(s *stream.States[string]) stream.Handler[string, order, string] {
		cents := stream.ListOf[int64](s, "cents")
		return stream.Handler[string, order, string]{Record: func(c *stream.Context[string, string], o order) error {
			if err := cents.Append(o.Cents); err != nil {
				return err
			}
			all, err := cents.All()
			if err != nil {
				return err
			}
			return c.Emit(fmt.Sprint(c.Key(), all))
		}}
	}
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", orders())
		stream.To(stream.Process(stream.KeyBy(orders, user), history), "out", sink)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [ann[100] bob[250] ann[100 300] ann[100 300 50]] <nil>
}

func ExampleWindow() {
	pipe, err := streamtest.NewPipe(func(orders *stream.Stream[order]) *stream.Stream[string] {
		windows := stream.Window(stream.KeyBy(orders, user), window.Tumbling(time.Minute)).WithLateness(time.Minute)
		return stream.Aggregate(windows, sumCents{})
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pipe.Close()
	show := func(what string, err error) {
		fmt.Print(what, ":")
		for _, r := range pipe.Take() {
			fmt.Print(" ", r.Value)
		}
		if err != nil {
			fmt.Print(" ", err)
		}
		fmt.Println()
	}
	show("a record", pipe.PushAt(second(10), order{User: "ann", Cents: 1}))
	show("the end of its minute", pipe.Watermark(second(60)))
	show("a late one", pipe.PushAt(second(11), order{User: "ann", Cents: 2}))
	show("the end of the lateness", pipe.Watermark(second(120)))
	show("one that is too late", pipe.PushAt(second(12), order{User: "ann", Cents: 4}))
	// Output:
	// a record:
	// the end of its minute: 00:00 ann 1
	// a late one: 00:00 ann 3
	// the end of the lateness:
	// one that is too late:
}

func ExampleAggregate() {
	sink := streamtest.NewSink[string]()
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", orders()).WithWatermarks(at, stream.Monotonous())
		windows := stream.Window(stream.KeyBy(orders, user), window.Sliding(2*time.Minute, time.Minute))
		stream.To(stream.Aggregate(windows, sumCents{}), "totals", sink)
		return nil
	})
	printSorted(sink.Values())
	fmt.Println(err)
	// Output:
	// 00:00 ann 450
	// 00:00 bob 250
	// 00:01 ann 50
	// 23:59 ann 400
	// 23:59 bob 250
	// <nil>
}

func ExampleReduce() {
	sink := streamtest.NewSink[order]()
	larger := func(a, b order) order {
		if b.Cents > a.Cents {
			return b
		}
		return a
	}
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", orders()).WithWatermarks(at, stream.Monotonous())
		largest := stream.Reduce(stream.Window(stream.KeyBy(orders, user), window.Tumbling(time.Minute)), larger)
		stream.To(largest, "largest", sink)
		return nil
	})
	for _, o := range sink.Values() {
		if o.User == "ann" {
			fmt.Println(o.Cents)
		}
	}
	fmt.Println(err)
	// Output:
	// 300
	// 50
	// <nil>
}

func ExampleApply() {
	sink := streamtest.NewSink[string]()
	gaps := func(user string, w window.Span, orders []order, emit func(string) error) error {
		for i := 1; i < len(orders); i++ {
			if err := emit(fmt.Sprintf("%s waits %s", user, orders[i].At.Sub(orders[i-1].At))); err != nil {
				return err
			}
		}
		return nil
	}
	err := streamtest.Run(func(env *stream.Env) error {
		orders := stream.From(env, "orders", orders()).WithWatermarks(at, stream.Monotonous())
		stream.To(stream.Apply(stream.Window(stream.KeyBy(orders, user), window.Tumbling(time.Minute)), gaps), "gaps", sink)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [ann waits 29s] <nil>
}

func ExamplePlan() {
	_, err := stream.Plan(func(env *stream.Env) error {
		env.SetParallelism(2)
		orders := stream.From(env, "orders", orders())
		totals := stream.Aggregate(stream.Window(stream.KeyBy(orders, user), window.Tumbling(0)), sumCents{})
		stream.To(totals, "totals", streamtest.NewSink[string]())
		return nil
	}, stream.PlanOptions{Name: "faulty"})
	fmt.Println(strings.Count(err.Error(), "\n")+1, "problems, one of them:")
	fmt.Println(strings.Split(err.Error(), "\n")[1])
	// Output:
	// 3 problems, one of them:
	// window: the slide 0s is below one millisecond
}

func ExampleDefaultCheckpoints() {
	_, err := stream.Plan(func(env *stream.Env) error {
		c := stream.DefaultCheckpoints()
		c.Interval, c.Timeout = 100*time.Millisecond, 10*time.Second
		env.SetCheckpoints(c)
		stream.To(stream.From(env, "numbers", streamtest.Values(1)), "out", streamtest.NewSink[int]())
		return nil
	}, stream.PlanOptions{Name: "fast"})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleDefaultRestarts() {
	program, err := stream.Plan(func(env *stream.Env) error {
		p := stream.DefaultRestarts()
		p.MaxRestarts = 3
		env.SetRestartPolicy(p)
		stream.To(stream.From(env, "numbers", streamtest.Values(1)), "out", streamtest.NewSink[int]())
		return nil
	}, stream.PlanOptions{Name: "careful"})
	fmt.Println(program.Graph.Restarts.MaxRestarts, err)
	// Output: 3 <nil>
}

func ExampleWithStateDir() {
	job := func(env *stream.Env) error {
		stream.To(stream.From(env, "words", streamtest.Values("hello")), "out", streamtest.NewSink[string]())
		return nil
	}
	_ = func() { // the main function of the job's program
		stream.Main(job, stream.WithStateDir("/var/lib/hello"))
	}
	// Output:
}

func ExampleWithLogger() {
	job := func(env *stream.Env) error {
		stream.To(stream.From(env, "words", streamtest.Values("hello")), "out", streamtest.NewSink[string]())
		return nil
	}
	_ = func() { // the main function of the job's program
		stream.Main(job, stream.WithLogger(slog.New(slog.NewJSONHandler(os.Stderr, nil))))
	}
	// Output:
}

func ExampleStream_WithCodec() {
	numbers, err := codec.For[int]()
	if err != nil {
		fmt.Println(err)
		return
	}
	sink := streamtest.NewSink[int]()
	err = streamtest.Run(func(env *stream.Env) error {
		in := stream.From(env, "numbers", streamtest.Values(1, 2)).WithCodec(numbers)
		stream.To(in, "out", sink).NoChain()
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [1 2] <nil>
}

func ExampleMain() {
	job := func(env *stream.Env) error {
		words := stream.From(env, "words", streamtest.Values("hello"))
		stream.To(words, "out", streamtest.NewSink[string]())
		return nil
	}
	_ = func() { // the main function of the job's program
		stream.Main(job)
	}
	// Output:
}
