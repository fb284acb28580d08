// Command bench compares Weir with what an engineer would write by hand: Kafka to Kafka, exactly once, one filter in between, on
// the same machine and broker, with the same client. It measures CPU time per record of every process but the broker, in alternate runs,
// and prints the ratio of the medians. Absolute figures depend on the machine; the ratio is the result.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
)

func main() {
	records := flag.Int("records", 3_000_000, "records in the input topic")
	rounds := flag.Int("rounds", 3, "runs of each program")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *records, *rounds); err != nil {
		log.Fatal(err)
	}
}

// bench is the set-up that all runs share.
type bench struct {
	dir    string
	broker *kafkatest.Broker
	in     string
	kept   int64
}

// result is one run.
type result struct {
	cpu, wall time.Duration
}

func run(ctx context.Context, records, rounds int) (err error) {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, pkg := range []string{"cmd/weir", "bench/handwritten", "bench/passthrough"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, filepath.Base(pkg)), "github.com/weir-stream/weir/"+pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
		}
	}
	b := &bench{dir: dir, in: "bench-in"}
	if b.broker, err = kafkatest.Start(ctx, kafkatest.Config{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.broker.Close()) }()
	if err := b.broker.CreateTopic(ctx, b.in, partitions, nil); err != nil {
		return err
	}
	if b.kept, err = fill(ctx, b.broker, b.in, records); err != nil {
		return err
	}
	fmt.Printf("%d records of %d bytes, of which the job keeps %d\n", records, size, b.kept)
	results := map[string][]result{}
	for round := range rounds {
		for name, program := range map[string]func(context.Context, string) (result, error){"handwritten": b.handwritten, "weir": b.weir} {
			out := fmt.Sprintf("bench-%s-%d", name, round)
			if err := b.broker.CreateTopic(ctx, out, partitions, nil); err != nil {
				return err
			}
			r, err := program(ctx, out)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			n, err := count(ctx, b.broker, out)
			if err != nil {
				return err
			}
			if n != b.kept {
				return fmt.Errorf("%s: %d records are committed, %d expected", name, n, b.kept)
			}
			results[name] = append(results[name], r)
			fmt.Printf("%-12s round %d: %s CPU, %s wall, %.0f ns CPU per record\n", name, round+1,
				r.cpu, r.wall.Round(time.Millisecond), float64(r.cpu.Nanoseconds())/float64(records))
		}
	}
	hand, weir := median(results["handwritten"]), median(results["weir"])
	fmt.Printf("median CPU per record: handwritten %.0f ns, weir %.0f ns, ratio %.2f\n",
		float64(hand.Nanoseconds())/float64(records), float64(weir.Nanoseconds())/float64(records), float64(weir)/float64(hand))
	return nil
}

func median(rs []result) time.Duration {
	var all []time.Duration
	for _, r := range rs {
		all = append(all, r.cpu)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// handwritten measures the program of bench/handwritten, from its start.
func (b *bench) handwritten(ctx context.Context, out string) (result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, filepath.Join(b.dir, "handwritten"), "--brokers", b.broker.Addr(), "--in", b.in, "--out", out,
		"--partitions", fmt.Sprint(partitions))
	cmd.Stderr = os.Stderr
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	exited := make(chan struct{})
	go func() {
		cancel(fmt.Errorf("it exited: %w", cmd.Wait()))
		close(exited)
	}()
	defer func() {
		_ = cmd.Process.Kill()
		<-exited
	}()
	if err := b.await(ctx, out); err != nil {
		return result{}, errors.Join(err, context.Cause(ctx))
	}
	used, err := cpu([]int{cmd.Process.Pid})
	return result{used, time.Since(begin)}, err
}

// weir measures a cluster of one JobManager and one TaskManager, both included, from the submission of the job.
func (b *bench) weir(ctx context.Context, out string) (_ result, err error) {
	dir := filepath.Join(b.dir, out)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return result{}, err
	}
	c, err := localcluster.Start(ctx, localcluster.Config{
		Binary: filepath.Join(b.dir, "weir"), Dir: dir, JobManagers: 1, TaskManagers: 1, Slots: partitions,
	})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	nodes := []int{c.JobManagers()[0].PID(), c.TaskManagers()[0].PID()}
	before, err := cpu(nodes)
	if err != nil {
		return result{}, err
	}
	begin := time.Now()
	submit := exec.CommandContext(ctx, filepath.Join(b.dir, "weir"), "submit", "--jobmanager", c.Addresses(), "-p", fmt.Sprint(partitions),
		filepath.Join(b.dir, "passthrough"), "--", "--brokers", b.broker.Addr(), "--in", b.in, "--out", out)
	if text, err := submit.CombinedOutput(); err != nil {
		return result{}, fmt.Errorf("submit: %w\n%s", err, text)
	}
	if err := b.await(ctx, out); err != nil {
		return result{}, err
	}
	wall := time.Since(begin)
	workers, err := children(nodes[1])
	if err != nil {
		return result{}, err
	}
	after, err := cpu(append(nodes, workers...))
	return result{after - before, wall}, err
}

// children returns the processes started by pid.
func children(pid int) ([]int, error) {
	text, err := exec.Command("ps", "-o", "pid=", "--ppid", fmt.Sprint(pid)).Output()
	if err != nil {
		return nil, fmt.Errorf("list the workers: %w", err)
	}
	var out []int
	for _, f := range strings.Fields(string(text)) {
		var n int
		if _, err := fmt.Sscan(f, &n); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// await waits until everything the job keeps is committed. Markers count in the offset too, a few dozen among millions of records; the
// exact count is checked afterwards.
func (b *bench) await(ctx context.Context, out string) error {
	client, err := b.broker.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for deadline := time.Now().Add(5 * time.Minute); ; {
		n, err := stable(ctx, admin, out)
		if err != nil {
			return err
		}
		if n >= b.kept {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d records are committed after 5 minutes", n, b.kept)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
