// Command trial runs a real Kafka broker on loopback for trying jobs, until it is interrupted. Its data is kept.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/weir-stream/weir/internal/kafkatest"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kafka:", err)
		os.Exit(1) //nolint:gocritic // there is nothing to cancel any more
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("kafka", flag.ContinueOnError)
	port := flags.Int("port", 9092, "port for clients; the two after it are used as well")
	dir := flags.String("dir", ".cache/kafka", "directory of data, log and tools")
	properties := map[string]string{}
	flags.Func("set", "name=value: a setting of the broker, such as transaction.max.timeout.ms=60000; may be repeated", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("it is not name=value")
		}
		properties[name] = value
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "starting; the first time Maven fetches Kafka, which takes a minute")
	b, err := kafkatest.Start(ctx, kafkatest.Config{Dir: root, Port: *port, Properties: properties})
	if err != nil {
		return err
	}
	tools := filepath.Join(root, "bin")
	if err := b.WriteTools(tools); err != nil {
		return errors.Join(err, b.Close())
	}
	fmt.Fprintf(os.Stderr, "Kafka is at %s; its tools are in %s, its data and log in %s; Ctrl-C ends it\n", b.Addr(), tools, root)
	select {
	case <-ctx.Done():
	case <-b.Done():
		return errors.Join(fmt.Errorf("the broker has ended by itself:\n%s", b.LogTail(20)), b.Close())
	}
	return b.Close()
}
