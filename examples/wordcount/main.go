// Command wordcount counts words in windows of one second and prints the counts. Start it with
//
//	go run ./examples/wordcount
//
// and stop it with Ctrl-C; started again it goes on where it stopped.
package main

import (
	"fmt"
	"strings"
	"time"

	printsink "github.com/weir-stream/weir/sinks/print"
	"github.com/weir-stream/weir/sources/generator"
	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/window"
)

var verses = []string{
	"the river is everywhere at the same time",
	"at the source and at the mouth",
	"at the waterfall at the ferry at the current",
	"in the ocean and in the mountains everywhere",
}

func main() { stream.Main(job) }

func job(env *stream.Env) error {
	env.SetName("wordcount")

	lines := stream.From(env, "lines", generator.New(func(n uint64) string { return verses[n%uint64(len(verses))] }).Rate(100))
	words := stream.FlatMap(lines, func(line string, emit func(string) error) error {
		for _, word := range strings.Fields(line) {
			if err := emit(word); err != nil {
				return err
			}
		}
		return nil
	})
	byWord := stream.KeyBy(words, func(word string) string { return word })
	counts := stream.Aggregate(stream.Window(byWord, window.Tumbling(time.Second)).InProcessingTime(), count{}).Named("counts")
	// Printing cannot be undone: the lines since the last checkpoint come again after a failure.
	stream.To(counts, "print", printsink.New[string]()).WithGuarantee(stream.AtLeastOnce)
	return nil
}

// count counts the occurrences of a word.
type count struct{}

// Add implements stream.Aggregator.
func (count) Add(n *int64, _ string) { *n++ }

// Merge implements stream.Aggregator.
func (count) Merge(into *int64, from int64) { *into += from }

// Result implements stream.Aggregator.
func (count) Result(word string, w window.Span, n int64) string {
	return fmt.Sprintf("%s %-12s %d", w.StartTime().Format(time.TimeOnly), word, n)
}
