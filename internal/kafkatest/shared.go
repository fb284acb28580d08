package kafkatest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// EnvBroker names the environment variable with the host:port of an existing broker that [Shared] uses instead of starting one.
const EnvBroker = "WEIR_TEST_KAFKA"

// shared is the one broker of a test binary: package state on purpose, since tests have no other common owner than [Main].
var shared struct {
	once   sync.Once
	broker *Broker
	err    error
}

// Existing returns a handle to a broker that somebody else runs.
func Existing(addr string) *Broker { return &Broker{listen: addr} }

// Shared returns the broker that all tests of this binary share, starting it at the first call. Topics need unique names, see
// [Broker.Topic]. The package's TestMain must call [Main]. A broker that cannot be had fails the test.
func Shared(t testing.TB) *Broker {
	t.Helper()
	shared.once.Do(func() {
		if addr := os.Getenv(EnvBroker); addr != "" {
			shared.broker = Existing(addr)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		shared.broker, shared.err = Start(ctx, Config{})
	})
	if shared.err != nil {
		t.Fatalf("no Kafka broker: %v", shared.err)
	}
	return shared.broker
}

// StartFor starts a broker for one test and closes it at the test's end.
func StartFor(t testing.TB, cfg Config) *Broker {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	b, err := Start(ctx, cfg)
	if err != nil {
		t.Fatalf("no Kafka broker: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close the broker: %v", err)
		}
	})
	return b
}

// Main runs the tests of a package, takes the shared broker down, runs the checks (goroutine leaks, for example) and exits.
func Main(m *testing.M, checks ...func() error) {
	code := m.Run()
	if b := shared.broker; b != nil {
		if err := b.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the shared broker:", err)
			code = max(code, 1)
		}
	}
	for _, check := range checks {
		if err := check(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
