package confluent_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/testca"
	"github.com/weir-stream/weir/operator"
	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	"github.com/weir-stream/weir/sinks/kafka/confluent"
)

func TestMain(m *testing.M) {
	kafkatest.Main(m, func() error { return goleak.Find() })
}

// librdkafka connects in the background and tries for ever; what it is refused must end the call that waits for it.
func TestRefusalsEndTheInitialisation(t *testing.T) {
	authority, err := testca.New("test")
	require.NoError(t, err)
	cfg, err := kafkatest.SecureConfig(t.TempDir(), authority, map[string]string{"clerk": "right"})
	require.NoError(t, err)
	broker := kafkatest.StartFor(t, cfg)
	for name, c := range map[string]struct {
		listener, password string
		tls                bool
		is                 error
		text               string
	}{
		"password":    {kafkatest.Password, "wrong", false, kafkaconn.ErrLogin, "authentication failed"},
		"certificate": {kafkatest.Expired, "right", true, kafkaconn.ErrCertificate, "certificate"},
		"right":       {kafkatest.Encrypted, "right", true, nil, `the user lacks the right Write on transactional id "clerk.1"`},
	} {
		t.Run(name, func(t *testing.T) {
			security := kafkasink.Security{Login: &kafkaconn.Login{Mechanism: "PLAIN", User: "clerk", Password: c.password}}
			if c.tls {
				security.TLS = &kafkaconn.TLS{CA: string(authority.PEM())}
			}
			p, err := confluent.New(nil)(kafkasink.ProducerConfig{
				Brokers: []string{broker.At(c.listener)}, TransactionalID: "clerk.1", TransactionTimeout: time.Minute, Security: security,
				Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			defer p.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			begin := time.Now()
			err = p.Init(ctx)
			require.Less(t, time.Since(begin), 20*time.Second)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			refused := kafkaconn.Refused(err, kafkaconn.Access{Operation: "Write", TransactionalID: "clerk.1"})
			require.ErrorIs(t, refused, operator.ErrRefused)
			require.ErrorContains(t, refused, c.text)
		})
	}
}

// A worker makes a client for each checkpoint and subtask, which must not cost it megabytes.
func TestClientsAreSmall(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const clients, most = 8, 1 << 20
	before := heap()
	for range clients {
		p, err := confluent.New(nil)(kafkasink.ProducerConfig{Brokers: []string{"127.0.0.1:1"}, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, p.Init(t.Context()))
		defer p.Close()
	}
	require.Less(t, (heap()-before)/clients, int64(most), "bytes of each client")
}
