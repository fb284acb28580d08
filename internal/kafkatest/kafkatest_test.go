package kafkatest_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/internal/kafkatest"
)

func TestMain(m *testing.M) {
	kafkatest.Main(m, func() error { return goleak.Find() })
}

func TestBrokerKeepsItsDataOverAKill(t *testing.T) {
	ctx := t.Context()
	b := kafkatest.StartFor(t, kafkatest.Config{})
	topic := b.Topic(t, 2, nil)
	require.NoError(t, b.ProduceNumbers(ctx, topic, 2, 1, 100))
	require.NoError(t, b.Kill())
	require.Error(t, b.Kill())
	require.NoError(t, b.Restart(ctx))
	seen, err := b.ReadNumbers(ctx, topic)
	require.NoError(t, err)
	require.NoError(t, kafkatest.CheckLedger(seen, 1, 100))
}

func TestOpenTransactionIsSeen(t *testing.T) {
	ctx := t.Context()
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 1, nil)
	cl, err := b.Client(kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, cl.BeginTransaction())
	require.NoError(t, cl.ProduceSync(ctx, kgo.StringRecord("1")).FirstErr())
	open, err := b.OpenTransactions(ctx, topic)
	require.NoError(t, err)
	require.Len(t, open, 1)
	ids, err := b.TransactionalIDs(ctx, topic)
	require.NoError(t, err)
	require.Equal(t, map[string]string{topic: "Ongoing"}, ids)
	seen, err := b.ReadNumbers(ctx, topic)
	require.NoError(t, err)
	require.Empty(t, seen)

	require.NoError(t, cl.EndTransaction(ctx, kgo.TryCommit))
	require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
	seen, err = b.ReadNumbers(ctx, topic)
	require.NoError(t, err)
	require.NoError(t, kafkatest.CheckLedger(seen, 1, 1))
}

func TestKafkasOwnToolsReachTheBroker(t *testing.T) {
	b := kafkatest.Shared(t)
	if b.PID() == 0 {
		t.Skip("the tools are those of a broker that was started here")
	}
	dir, topic := t.TempDir(), b.Topic(t, 1, nil)
	require.NoError(t, b.WriteTools(dir))
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "kafka-topics.sh"), "--list", "--bootstrap-server", b.Addr()).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), topic)
}

func TestCheckLedger(t *testing.T) {
	require.NoError(t, kafkatest.CheckLedger(map[int]int{1: 1, 2: 1}, 1, 2))
	require.ErrorContains(t, kafkatest.CheckLedger(map[int]int{1: 1}, 1, 2), "1 are missing")
	require.ErrorContains(t, kafkatest.CheckLedger(map[int]int{1: 2, 2: 1}, 1, 2), "1 repeated")
	require.ErrorContains(t, kafkatest.CheckLedger(map[int]int{1: 1, 2: 1, 3: 1}, 1, 2), "1 foreign")
}

func TestMissingSoftwareIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := kafkatest.Start(t.Context(), kafkatest.Config{})
	require.ErrorIs(t, err, kafkatest.ErrNoJava)

	t.Setenv("PATH", fakeJava(t))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err = kafkatest.Start(t.Context(), kafkatest.Config{})
	require.ErrorIs(t, err, kafkatest.ErrNoMaven)
}

func fakeJava(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/java", []byte("#!/bin/sh\nexit 1\n"), 0o755))
	return dir
}

func TestProxyDelaysCutsAndRestores(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 4)
				for {
					if _, err := c.Read(buf); err != nil {
						return
					}
					if _, err := c.Write(buf); err != nil {
						return
					}
				}
			}()
		}
	}()
	p, err := kafkatest.NewProxy()
	require.NoError(t, err)
	defer p.Close()
	p.SetTarget(echo.Addr().String())

	call := func() (time.Duration, error) {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			return 0, err
		}
		defer c.Close()
		begin := time.Now()
		if _, err := c.Write([]byte("ping")); err != nil {
			return 0, err
		}
		_, err = c.Read(make([]byte, 4))
		return time.Since(begin), err
	}
	_, err = call()
	require.NoError(t, err)
	p.Delay(80 * time.Millisecond)
	took, err := call()
	require.NoError(t, err)
	require.GreaterOrEqual(t, took, 80*time.Millisecond)
	p.Cut()
	_, err = call()
	require.Error(t, err)
	p.Restore()
	_, err = call()
	require.NoError(t, err)
}

func TestBrokerThatCannotStartTellsItsLog(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := kafkatest.Start(ctx, kafkatest.Config{Properties: map[string]string{"num.io.threads": "none"}})
	require.ErrorContains(t, err, "num.io.threads")
}
