package kafkasink_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/operator"
	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	"github.com/weir-stream/weir/sinks/sinktest"
)

// envWriter makes the test binary a writer process instead of running tests.
const envWriter = "WEIR_TEST_KAFKA_WRITER"

func TestMain(m *testing.M) {
	if cfg := os.Getenv(envWriter); cfg != "" {
		if err := writerProcess(cfg, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stdout, "error", err)
			os.Exit(1)
		}
		return
	}
	kafkatest.Main(m, func() error { return goleak.Find() })
}

type writerConfig struct {
	Brokers, Topic, Job, Client string
}

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

// writerProcess runs attempt 1 of a sink and obeys commands line by line: "write N", "barrier N", "commit N". Each is answered by a
// line: "ok", "error TEXT" or, for a barrier, "ok" and the committables.
func writerProcess(config string, in io.Reader, out io.Writer) error {
	var cfg writerConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return err
	}
	sink := kafkasink.New(cfg.Brokers, cfg.Topic, encodeNumber, clients[cfg.Client], kafkasink.TransactionTimeout(5*time.Minute), kafkasink.Deadline(5*time.Second))
	instance, err := sink.NewInstance(graph.ExactlyOnce)
	if err != nil {
		return err
	}
	ctx := context.Background()
	err = instance.Open(ctx, &operator.Runtime{
		ClusterID: "cluster", JobID: cfg.Job, Attempt: 1, Operator: graph.Operator{UID: "out"}, Parallelism: 1,
		Checkpoints: sinktest.Checkpoints(), Clock: realClock{}, Logger: slog.New(slog.DiscardHandler), Stats: &operator.Stats{},
	})
	if err != nil {
		return err
	}
	if err := instance.(operator.Committer).RecoverAbort(ctx, operator.Scope{Parallelism: 1}); err != nil {
		return err
	}
	fmt.Fprintln(out, "ok")
	collector := instance.Input().(operator.Collector[int])
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var command string
		var n int
		if _, err := fmt.Sscan(lines.Text(), &command, &n); err != nil {
			return err
		}
		answer, err := obey(ctx, instance, collector, command, n)
		if err != nil {
			fmt.Fprintln(out, "error", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Fprintln(out, "ok", answer)
	}
	return lines.Err()
}

func obey(ctx context.Context, instance operator.Instance, collector operator.Collector[int], command string, n int) (string, error) {
	switch command {
	case "write":
		return "", collector.Collect(n, operator.NoTimestamp)
	case "barrier":
		finish, err := instance.Snapshot(ctx, operator.Barrier{Checkpoint: uint64(n)})
		if err != nil {
			return "", err
		}
		snapshot, err := finish(ctx)
		if err != nil {
			return "", err
		}
		b, err := proto.Marshal(snapshot)
		return base64.StdEncoding.EncodeToString(b), err
	case "commit":
		done := make(chan error, 1)
		instance.(operator.Committer).Commit(uint64(n), func(err error) { done <- err })
		return "", <-done
	}
	return "", fmt.Errorf("unknown command %q", command)
}

// writer is a writer process.
type writer struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func startWriter(t *testing.T, cfg writerConfig) *writer {
	t.Helper()
	config, err := json.Marshal(cfg)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envWriter+"="+string(config))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	w := &writer{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(w.kill)
	require.Equal(t, "ok", w.read())
	return w
}

func (w *writer) read() string {
	w.t.Helper()
	line, err := w.out.ReadString('\n')
	require.NoError(w.t, err)
	return strings.TrimSpace(line)
}

func (w *writer) try(command string, n int) string {
	w.t.Helper()
	_, err := fmt.Fprintln(w.in, command, n)
	require.NoError(w.t, err)
	return w.read()
}

func (w *writer) do(command string, n int) []*snapshotv1.Committable {
	w.t.Helper()
	status, answer, _ := strings.Cut(w.try(command, n), " ")
	require.Equal(w.t, "ok", status, answer)
	b, err := base64.StdEncoding.DecodeString(answer)
	require.NoError(w.t, err)
	var s snapshotv1.OperatorSnapshot
	require.NoError(w.t, proto.Unmarshal(b, &s))
	return s.GetCommittables()
}

// kill ends the process as kill -9 does.
func (w *writer) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// TestKilledWriter kills the writer between every step of two checkpoints. The job restores the last checkpoint that completed, with
// the committables its snapshot listed, writes again what that checkpoint had not passed over, and completes. Each number must be
// visible exactly once.
func TestKilledWriter(t *testing.T) {
	b := kafkatest.Shared(t)
	steps := []string{"write 1", "barrier 1", "completed 1", "commit 1", "write 2", "barrier 2", "completed 2", "commit 2", "write 3"}
	for client := range clients {
		for kill := 1; kill <= len(steps); kill++ {
			t.Run(fmt.Sprintf("%s after %s", client, steps[kill-1]), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				topic := b.Topic(t, 1, nil)
				w := startWriter(t, writerConfig{b.Addr(), topic, topic, client})
				snapshots := map[int][]*snapshotv1.Committable{}
				completed := 0
				for _, step := range steps[:kill] {
					var command string
					var n int
					_, err := fmt.Sscan(step, &command, &n)
					require.NoError(t, err)
					switch command {
					case "barrier":
						snapshots[n] = w.do(command, n)
					case "completed": // in the log, and nobody was told
						completed = n
					default:
						w.do(command, n)
					}
				}
				w.kill()

				sink := kafkasink.New(b.Addr(), topic, encodeNumber, clients[client], kafkasink.TransactionTimeout(5*time.Minute))
				a := sinktest.Start[int](t, ctx, sink, sinktest.Deployment{
					Job: topic, Attempt: 2, Parallelism: 1, Guarantee: graph.ExactlyOnce, Checkpoints: sinktest.Checkpoints(),
					Restored: snapshots[completed], Former: []operator.FormerAttempt{sinktest.Former(1)},
				})
				for n := completed + 1; n <= 3; n++ {
					a.Write(n)
				}
				a.Barrier(10)
				a.Commit(10)
				require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
				seen, err := b.ReadNumbers(ctx, topic)
				require.NoError(t, err)
				require.NoError(t, kafkatest.CheckLedger(seen, 1, 3))
			})
		}
	}
}

// TestFrozenWriterWakesUp stops a writer with SIGSTOP while its successor finishes and fences its transactions, and lets it go on.
func TestFrozenWriterWakesUp(t *testing.T) {
	b := kafkatest.Shared(t)
	for client := range clients {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			topic := b.Topic(t, 1, nil)
			w := startWriter(t, writerConfig{b.Addr(), topic, topic, client})
			w.do("write", 1)
			committables := w.do("barrier", 1)
			w.do("write", 2)
			require.NoError(t, w.cmd.Process.Signal(syscall.SIGSTOP))

			sink := kafkasink.New(b.Addr(), topic, encodeNumber, clients[client], kafkasink.TransactionTimeout(5*time.Minute))
			a := sinktest.Start[int](t, ctx, sink, sinktest.Deployment{
				Job: topic, Attempt: 2, Parallelism: 1, Guarantee: graph.ExactlyOnce, Checkpoints: sinktest.Checkpoints(),
				Restored: committables, Former: []operator.FormerAttempt{sinktest.Former(1)},
			})
			a.Write(2)
			require.NoError(t, w.cmd.Process.Signal(syscall.SIGCONT))
			var answers []string
			for _, step := range []string{"write 9", "barrier 2", "commit 2"} {
				command, n, _ := strings.Cut(step, " ")
				answers = append(answers, w.try(command, int(n[0]-'0')))
			}
			require.Contains(t, strings.Join(answers, "\n"), "error", "a fenced writer must learn of it")
			a.Barrier(3)
			a.Commit(3)
			require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
			seen, err := b.ReadNumbers(ctx, topic)
			require.NoError(t, err)
			require.NoError(t, kafkatest.CheckLedger(seen, 1, 2))
		})
	}
}
