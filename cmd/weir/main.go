// Command weir is every role of a Weir cluster and the tool of its users.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/weir-stream/weir/cmd/weir/command"
)

func main() { os.Exit(run()) }

// run ends the command at the first signal in order, and the process at the second one at once.
func run() int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(130)
	}()
	return command.Execute(ctx, os.Args[1:], command.IO{Out: os.Stdout, Err: os.Stderr, Environ: os.Environ()})
}
