package nodetls_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/internal/nodetls"
	"github.com/weir-stream/weir/internal/testca"
	"github.com/weir-stream/weir/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logBuffer is a log that a test reads.
type logBuffer struct{ testlog.Buffer }

// await waits until the log holds every part: a peer may hear of a refusal before it is logged.
func (l *logBuffer) await(t *testing.T, parts ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		text := l.String()
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
	}, 10*time.Second, time.Millisecond)
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func authority(t *testing.T, name string) *testca.Authority {
	a, err := testca.New(name)
	require.NoError(t, err)
	return a
}

// files are those of a node with a certificate of signed, trusting others.
func files(t *testing.T, signed *testca.Authority, until time.Time, trusted ...*testca.Authority) nodetls.Files {
	dir := t.TempDir()
	pair, err := signed.Node("node", until)
	require.NoError(t, err)
	return write(t, dir, pair, trusted...)
}

func write(t *testing.T, dir string, pair testca.Pair, trusted ...*testca.Authority) nodetls.Files {
	cert, key, err := pair.Write(dir, "node")
	require.NoError(t, err)
	f := nodetls.Files{Cert: cert, Key: key, CA: filepath.Join(dir, "ca.crt")}
	trust(t, f.CA, trusted...)
	return f
}

func trust(t *testing.T, file string, trusted ...*testca.Authority) {
	var bundle []byte
	for _, a := range trusted {
		bundle = append(bundle, a.PEM()...)
	}
	require.NoError(t, testca.WriteFile(file, bundle))
}

var tomorrow = time.Now().Add(20 * time.Hour)

func node(t *testing.T, f nodetls.Files, log *logBuffer) *nodetls.Keeper {
	k, err := nodetls.OpenNode(f, []string{"127.0.0.1"}, log.logger())
	require.NoError(t, err)
	return k
}

// talk sends a byte there and back, and returns what each side says went wrong.
func talk(t *testing.T, server func(net.Conn) (net.Conn, error), client func(net.Conn, string) (net.Conn, error)) (serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer raw.Close()
		c, err := server(raw)
		if err == nil {
			b := make([]byte, 1)
			if _, err = io.ReadFull(c, b); err == nil {
				_, err = c.Write(b)
			}
		}
		done <- err
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, raw.SetDeadline(time.Now().Add(10*time.Second)))
	defer raw.Close()
	c, err := client(raw, l.Addr().String())
	if err == nil {
		if _, err = c.Write([]byte("x")); err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
	}
	_ = raw.Close()
	return <-done, err
}

func secured(k *nodetls.Keeper) func(net.Conn, string) (net.Conn, error) {
	return func(c net.Conn, address string) (net.Conn, error) { return k.Client(context.Background(), c, address) }
}

func TestNodesOfOneAuthorityTalk(t *testing.T) {
	ca := authority(t, "one")
	var log logBuffer
	a, b := node(t, files(t, ca, tomorrow, ca), &log), node(t, files(t, ca, tomorrow, ca), &log)
	serverErr, clientErr := talk(t, a.Server, secured(b))
	require.NoError(t, serverErr)
	require.NoError(t, clientErr)
	require.Empty(t, log.String())
}

func TestAnotherAuthorityIsRefusedWithWordsOnBothSides(t *testing.T) {
	ca, other := authority(t, "one"), authority(t, "other")
	var server, client logBuffer
	a := node(t, files(t, ca, tomorrow, ca), &server)
	t.Run("the server refuses", func(t *testing.T) {
		b := node(t, files(t, other, tomorrow, ca), &client)
		require.Contains(t, client.String(), "issued by CN=other", "warned of at once")
		serverErr, clientErr := talk(t, a.Server, secured(b))
		require.ErrorIs(t, serverErr, nodetls.ErrUntrusted)
		require.ErrorIs(t, clientErr, nodetls.ErrRefused)
		require.Contains(t, clientErr.Error(), "unknown certificate authority")
		require.Contains(t, server.String(), "CN=node was issued by CN=other, which is not one of the authorities known here")
		before := server.String()
		_, clientErr = talk(t, a.Server, secured(b))
		require.ErrorIs(t, clientErr, nodetls.ErrRefused)
		require.Equal(t, before, server.String(), "the same refusal is not logged at every try")
	})
	t.Run("the client refuses", func(t *testing.T) {
		b := node(t, files(t, other, tomorrow, other), &client)
		serverErr, clientErr := talk(t, a.Server, secured(b))
		require.ErrorIs(t, clientErr, nodetls.ErrUntrusted)
		require.ErrorContains(t, clientErr, "CN=node was issued by CN=one")
		require.ErrorIs(t, serverErr, nodetls.ErrRefused)
	})
}

func TestExpiredCertificate(t *testing.T) {
	ca := authority(t, "one")
	var log logBuffer
	fresh, stale := node(t, files(t, ca, tomorrow, ca), &log), node(t, files(t, ca, time.Now().Add(-time.Hour), ca), &log)
	require.Contains(t, log.String(), "is valid from")
	serverErr, clientErr := talk(t, fresh.Server, secured(stale))
	require.ErrorIs(t, serverErr, nodetls.ErrUntrusted)
	require.ErrorContains(t, serverErr, "is valid from")
	require.ErrorIs(t, clientErr, nodetls.ErrRefused)
	_, clientErr = talk(t, stale.Server, secured(fresh))
	require.ErrorIs(t, clientErr, nodetls.ErrUntrusted)
	require.ErrorContains(t, clientErr, "is valid from")
}

func TestTheCertificateMustNameTheHost(t *testing.T) {
	ca := authority(t, "one")
	var log logBuffer
	k := node(t, files(t, ca, tomorrow, ca), &log)
	_, clientErr := talk(t, k.Server, func(c net.Conn, _ string) (net.Conn, error) {
		return k.Client(context.Background(), c, "jm1.example:6124")
	})
	require.ErrorIs(t, clientErr, nodetls.ErrUntrusted)
	require.ErrorContains(t, clientErr, "jm1.example")
}

func TestACertificateThatDoesNotNameItsHostIsWarnedOf(t *testing.T) {
	ca := authority(t, "one")
	var log logBuffer
	f := files(t, ca, tomorrow, ca)
	_, err := nodetls.OpenNode(f, []string{"localhost", "127.0.0.1"}, log.logger())
	require.NoError(t, err)
	require.Empty(t, log.String())
	_, err = nodetls.OpenNode(f, []string{"localhost", "jm1.example"}, log.logger())
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(log.String(), "does not name a host"))
	require.Contains(t, log.String(), "host=jm1.example")
}

func TestAUserIsNoNode(t *testing.T) {
	ca, users := authority(t, "one"), authority(t, "users")
	var log logBuffer
	f := files(t, ca, tomorrow, ca)
	f.UserCA = filepath.Join(filepath.Dir(f.CA), "users.crt")
	trust(t, f.UserCA, users)
	pair, err := users.User("alice")
	require.NoError(t, err)
	user, err := nodetls.OpenUser(write(t, t.TempDir(), pair, ca))
	require.NoError(t, err)
	serverErr, _ := talk(t, node(t, f, &log).Server, secured(user))
	require.ErrorIs(t, serverErr, nodetls.ErrUntrusted)
	anonymous, err := nodetls.OpenUser(nodetls.Files{CA: f.CA})
	require.NoError(t, err)
	serverErr, clientErr := talk(t, node(t, f, &log).Server, secured(anonymous))
	require.Error(t, serverErr)
	require.ErrorIs(t, clientErr, nodetls.ErrRefused)
}

func TestAuthoritiesOfUsersMustNotLeadToNodes(t *testing.T) {
	ca := authority(t, "one")
	sub, err := ca.Sub("users")
	require.NoError(t, err)
	f := files(t, ca, tomorrow, ca)
	for _, users := range []*testca.Authority{ca, sub} {
		f.UserCA = filepath.Join(t.TempDir(), "users.crt")
		trust(t, f.UserCA, users)
		_, err := nodetls.OpenNode(f, []string{"127.0.0.1"}, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "its users would be nodes")
	}
}

// Old authority, then both, then the new one: at each step the nodes talk, and the last leaves the old one out.
func TestRotation(t *testing.T) {
	old, fresh := authority(t, "old"), authority(t, "new")
	var log logBuffer
	fa, fb := files(t, old, tomorrow, old), files(t, old, tomorrow, old)
	a, b := node(t, fa, &log), node(t, fb, &log)
	leftBehind := node(t, files(t, old, tomorrow, old), &log)
	fine := func() {
		t.Helper()
		for _, pair := range [][2]*nodetls.Keeper{{a, b}, {b, a}} {
			serverErr, clientErr := talk(t, pair[0].Server, secured(pair[1]))
			require.NoError(t, errors.Join(serverErr, clientErr))
		}
	}
	fine()
	for _, f := range []nodetls.Files{fa, fb} {
		trust(t, f.CA, old, fresh)
		fine()
	}
	for _, f := range []nodetls.Files{fa, fb} {
		pair, err := fresh.Node("node", tomorrow)
		require.NoError(t, err)
		write(t, filepath.Dir(f.Cert), pair, old, fresh)
		fine()
	}
	for _, f := range []nodetls.Files{fa, fb} {
		trust(t, f.CA, fresh)
		fine()
	}
	serverErr, _ := talk(t, a.Server, secured(leftBehind))
	require.Error(t, serverErr)
	require.NotContains(t, log.String(), "cannot be used")
}

func TestHalfAPairLeavesTheFormerInForce(t *testing.T) {
	ca := authority(t, "one")
	var log logBuffer
	f := files(t, ca, tomorrow, ca)
	a, b := node(t, f, &log), node(t, files(t, ca, tomorrow, ca), &log)
	was := a.Expires()
	later, err := ca.Node("node", tomorrow.Add(time.Hour))
	require.NoError(t, err)

	require.NoError(t, testca.WriteFile(f.Cert, later.Cert))
	serverErr, clientErr := talk(t, a.Server, secured(b))
	require.NoError(t, errors.Join(serverErr, clientErr))
	require.Equal(t, was, a.Expires())
	require.Equal(t, 1, strings.Count(log.String(), "cannot be used"), log.String())

	require.NoError(t, os.WriteFile(f.Key, later.Key[:len(later.Key)/2], 0o600))
	require.Equal(t, was, a.Expires())

	require.NoError(t, os.WriteFile(f.Key, later.Key, 0o600))
	require.True(t, a.Expires().After(was))
	serverErr, clientErr = talk(t, a.Server, secured(b))
	require.NoError(t, errors.Join(serverErr, clientErr))

	require.NoError(t, os.Remove(f.CA))
	require.True(t, a.Expires().After(was), "a file that is gone changes nothing")
	for line := range strings.Lines(string(later.Key)) {
		require.NotContains(t, log.String(), strings.TrimSpace(line))
	}
}

func TestPlainAgainstTLS(t *testing.T) {
	ca := authority(t, "one")
	var log logBuffer
	k := node(t, files(t, ca, tomorrow, ca), &log)
	t.Run("client without", func(t *testing.T) {
		serverErr, clientErr := talk(t, k.Server, func(c net.Conn, _ string) (net.Conn, error) { return nodetls.PlainClient(c), nil })
		require.ErrorIs(t, serverErr, nodetls.ErrPlain)
		require.ErrorIs(t, clientErr, nodetls.ErrWantsTLS)
		require.Contains(t, log.String(), nodetls.ErrPlain.Error())
	})
	t.Run("server without, which speaks first", func(t *testing.T) {
		_, clientErr := talk(t, func(c net.Conn) (net.Conn, error) {
			_, err := c.Write([]byte("hello, who is there?"))
			return c, err
		}, secured(k))
		require.ErrorIs(t, clientErr, nodetls.ErrPlain)
	})
	t.Run("server without, which listens", func(t *testing.T) {
		_, clientErr := talk(t, func(c net.Conn) (net.Conn, error) { return c, nil }, secured(k))
		require.ErrorIs(t, clientErr, nodetls.ErrPlain)
	})
}

func TestFilesThatAreNotSound(t *testing.T) {
	ca := authority(t, "one")
	good := files(t, ca, tomorrow, ca)
	junk := filepath.Join(t.TempDir(), "junk")
	require.NoError(t, os.WriteFile(junk, []byte("junk"), 0o600))
	for name, tc := range map[string]struct {
		files nodetls.Files
		says  []string
	}{
		"only a certificate": {nodetls.Files{Cert: good.Cert}, []string{"tls_key, tls_ca: must be set too"}},
		"user_ca alone":      {nodetls.Files{UserCA: good.CA}, []string{"tls_cert, tls_key, tls_ca: must be set too"}},
		"no such key":        {nodetls.Files{Cert: good.Cert, Key: junk + "2", CA: good.CA}, []string{"read the key", junk + "2"}},
		"key is junk":        {nodetls.Files{Cert: good.Cert, Key: junk, CA: good.CA}, []string{junk}},
		"authority is junk":  {nodetls.Files{Cert: good.Cert, Key: good.Key, CA: junk}, []string{junk, "holds no certificate"}},
		"authority is a key": {nodetls.Files{Cert: good.Cert, Key: good.Key, CA: good.Key}, []string{"private key"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nodetls.OpenNode(tc.files, []string{"127.0.0.1"}, slog.New(slog.DiscardHandler))
			for _, text := range tc.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
	require.NoError(t, nodetls.Files{}.ValidateNode())
	_, err := nodetls.OpenUser(nodetls.Files{CA: good.CA, Cert: good.Cert})
	require.ErrorContains(t, err, "belong together")
	_, err = nodetls.OpenUser(nodetls.Files{Cert: good.Cert, Key: good.Key})
	require.ErrorContains(t, err, "authority is not given")
}

func TestEndOfCertificateIsAnnounced(t *testing.T) {
	ca := authority(t, "one")
	var log logBuffer
	k := node(t, files(t, ca, tomorrow, ca), &log)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k.Watch(ctx)
	k.Watch(ctx)
	require.Equal(t, 1, strings.Count(log.String(), "expires soon"), log.String())
}
