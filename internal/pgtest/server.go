package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-stream/weir/internal/child"
	"github.com/weir-stream/weir/internal/loopback"
)

// Config describes a server. The zero value is good.
type Config struct {
	// Settings are passed to the server and override what is there, max_prepared_transactions=100 among it.
	Settings map[string]string
	// StartTimeout bounds one start; default 60 s.
	StartTimeout time.Duration
}

// Errors that name what the machine lacks.
var (
	ErrNoPostgres = errors.New("PostgreSQL not found: install it (Debian: apt-get install postgresql), or set " + EnvServer + "=postgres://user:password@host/database")
	errForeign    = errors.New("the server named by " + EnvServer + " is not managed by the tests")
)

const (
	superuser   = "weir"
	stopTimeout = 20 * time.Second
)

// Server is one PostgreSQL server.
type Server struct {
	url string // of an existing server, else empty

	cfg  Config
	bin  string
	dir  string
	port int
	cred *syscall.Credential

	process child.Process

	databases atomic.Int64
}

// Start initialises a server and returns when it answers. The context bounds the start only; the caller owns the server and must Close
// it.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	s := &Server{cfg: cfg}
	if s.cfg.StartTimeout == 0 {
		s.cfg.StartTimeout = time.Minute
	}
	if s.bin, err = programs(); err != nil {
		return nil, err
	}
	if s.cred, err = account(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "weir-postgres-"); err != nil {
		return nil, err
	}
	s.process.Name, s.process.Log, s.process.StopTimeout = "the PostgreSQL server", filepath.Join(s.dir, "server.log"), stopTimeout
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if s.cred != nil {
		if err := os.Chown(s.dir, int(s.cred.Uid), int(s.cred.Gid)); err != nil {
			return nil, err
		}
	}
	initdb := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "--pgdata", s.data(), "--username", superuser,
		"--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: s.cred}
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initialise a PostgreSQL server: %w\n%s", err, out)
	}
	ports, err := loopback.FreePorts(1)
	if err != nil {
		return nil, err
	}
	s.port = ports[0]
	return s, s.Restart(ctx)
}

// programs returns the directory with initdb and postgres.
func programs() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if program, err := filepath.EvalSymlinks(path); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(program), "postgres")); err == nil {
				return filepath.Dir(program), nil
			}
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", ErrNoPostgres
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

// account returns the account that the server runs as; nil for our own.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uerr, gerr); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Restart starts a stopped or killed server again on the same data and the same port, and returns when it answers.
func (s *Server) Restart(ctx context.Context) error {
	if s.url != "" {
		return errForeign
	}
	settings := map[string]string{
		"listen_addresses": "127.0.0.1", "port": strconv.Itoa(s.port), "unix_socket_directories": "",
		"max_prepared_transactions": "100", "max_connections": "200", "shared_buffers": "32MB",
		// A kill of the server keeps what the kernel has; nobody pulls the plug of the test's machine.
		"fsync": "off",
	}
	for k, v := range s.cfg.Settings {
		settings[k] = v
	}
	args := []string{"-D", s.data()}
	for k, v := range settings {
		args = append(args, "-c", k+"="+v)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	if err := s.run(args); err != nil {
		return err
	}
	for {
		conn, err := pgx.Connect(ctx, s.URL())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.process.Done():
			// Processes of a killed predecessor may not have ended yet; until then a start fails.
			if !strings.Contains(s.Log(), "pre-existing shared memory block") {
				return fmt.Errorf("the server died while starting:\n%s", s.Log())
			}
			<-tick.C
			if err := s.run(args); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("the server was not ready in time: %w\n%s", err, s.Log())
		case <-tick.C:
		}
	}
}

func (s *Server) run(args []string) error {
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: s.cred}
	return s.process.Start(cmd, os.O_APPEND)
}

// Log returns what the server has written.
func (s *Server) Log() string {
	out, err := os.ReadFile(s.process.Log)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// URL returns the URL of the server's default database, with a superuser.
func (s *Server) URL() string {
	if s.url != "" {
		return s.url
	}
	return "postgres://" + superuser + "@" + loopback.Address(s.port) + "/postgres?sslmode=disable"
}

// Database makes an empty database for one test and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		t.Fatalf("connect to PostgreSQL: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), s.databases.Add(1))
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name+""); err != nil {
		t.Fatalf("make a database: %v", err)
	}
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// Kill ends the server at once, as kill -9 of its first process does; its other processes end when they miss it. Its data stays.
func (s *Server) Kill() error {
	return s.end(syscall.SIGKILL)
}

// Stop ends the server at once and in order: connections are cut, data is written.
func (s *Server) Stop() error {
	return s.end(syscall.SIGINT)
}

func (s *Server) end(sig syscall.Signal) error {
	if s.url != "" {
		return errForeign
	}
	return s.process.End(sig)
}

// Close stops the server and removes its data.
func (s *Server) Close() error {
	if s.url != "" {
		return nil
	}
	err := s.Stop()
	if errors.Is(err, child.ErrNotRunning) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
