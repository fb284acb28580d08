package pgtest

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"
)

// EnvServer names the environment variable with the URL of an existing server that [Shared] uses instead of starting one. Its user must
// be allowed to create databases; max_prepared_transactions must be 50 at least.
const EnvServer = "WEIR_TEST_POSTGRES"

// shared is the one server of a test binary: package state on purpose, since tests have no other common owner than [Close].
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Existing returns a handle to a server that somebody else runs.
func Existing(url string) *Server { return &Server{url: url} }

// Shared returns the server that all tests of this binary share, starting it at the first call. The package's TestMain must call
// [Close]. A server that cannot be had fails the test.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() {
		if url := os.Getenv(EnvServer); url != "" {
			shared.server = Existing(url)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		shared.server, shared.err = Start(ctx, Config{})
	})
	if shared.err != nil {
		t.Fatalf("no PostgreSQL server: %v", shared.err)
	}
	return shared.server
}

// Close takes the shared server down, if there is one.
func Close() error {
	if shared.server == nil {
		return nil
	}
	return shared.server.Close()
}

// StartFor starts a server for one test and closes it at the test's end.
func StartFor(t testing.TB, cfg Config) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := Start(ctx, cfg)
	if err != nil {
		t.Fatalf("no PostgreSQL server: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
	})
	return s
}
