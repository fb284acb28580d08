package main

import (
	"fmt"
	"strconv"
	"time"

	filesink "github.com/weir-stream/weir/sinks/file"
	postgressink "github.com/weir-stream/weir/sinks/postgres"
	"github.com/weir-stream/weir/stream"
)

// numbered is a message whose value is a number.
type numbered struct {
	N   int    `json:"n"`
	Key string `json:"key"`
}

// tables writes every record to a table of PostgreSQL and to files.
func (o options) tables(env *stream.Env) {
	numbers := stream.Map(o.from(env), func(m message) numbered {
		n, _ := strconv.Atoi(string(m.Value))
		return numbered{n, string(m.Key)}
	}).Named("numbers")
	stream.To(numbers, "table", postgressink.New(o.postgres, "numbers", []string{"n", "key"}, func(v numbered) []any { return []any{v.N, v.Key} }))
	stream.To(numbers, "files", filesink.NewPartitioned(filesink.Directory(o.dir), filesink.JSONLines[numbered](), func(v numbered, _ time.Time) string {
		return fmt.Sprintf("tens=%d", v.N%100/10)
	}))
}
