package exchange_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/wiretap"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
)

var encrypted = exchange.Attempt{Job: "job", Attempt: 3, Token: "0123456789abcdef0123456789abcdef", Encrypt: true}

// Records are on the wire without TLS, and not with it.
func TestNothingIsReadableOnTheWire(t *testing.T) {
	for name, encrypt := range map[string]bool{"plain": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) {
			a := encrypted
			a.Encrypt = encrypt
			s, err := exchange.Listen("127.0.0.1", exchange.Ports{}, a)
			require.NoError(t, err)
			wire := wiretap.Listen(t, "127.0.0.1:0", address(s))
			defer s.Close(false)
			in := exchange.NewInbox(1)
			id := exchange.ID{Edge: "a→b", Producer: 1, Consumer: 2}
			s.Register(id, in, 0, func(error) {})
			d := exchange.NewDialer(a)
			defer d.Close()
			r := exchange.NewRemote(id, func(error) {})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			require.NoError(t, d.Connect(ctx, wire.Address, r))
			const payload = 0x7365637265742121 // "secret!!"
			require.NoError(t, r.Send(&batch{size: 8, values: []uint64{payload, payload, payload}}))
			require.Equal(t, []uint64{payload, payload, payload}, values((&link{inbox: in}).next(t), 8))
			require.NotEmpty(t, wire.Seen())
			require.Equal(t, !encrypt, strings.Contains(wire.Seen(), "secret!!secret!!"))
			require.Equal(t, !encrypt, strings.Contains(wire.Seen(), "PRI * HTTP/2.0"), "the calls' metadata neither")
		})
	}
}

// Whoever has another token is refused at once, by both ends.
func TestAnotherKeyIsRefused(t *testing.T) {
	s, err := exchange.Listen("127.0.0.1", exchange.Ports{}, encrypted)
	require.NoError(t, err)
	defer s.Close(false)
	id := exchange.ID{Edge: "e"}
	s.Register(id, exchange.NewInbox(1), 0, func(error) {})
	for name, other := range map[string]exchange.Attempt{
		"token":   {Job: "job", Attempt: 3, Token: "guess", Encrypt: true},
		"attempt": {Job: "job", Attempt: 2, Token: encrypted.Token, Encrypt: true},
		"job":     {Job: "other", Attempt: 3, Token: encrypted.Token, Encrypt: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := exchange.NewDialer(other)
			defer d.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := d.Connect(ctx, address(s), exchange.NewRemote(id, func(error) {}))
			require.ErrorIs(t, err, exchange.ErrRefused)
			require.NotContains(t, err.Error(), encrypted.Token)
		})
	}
	t.Run("a client that does not check", func(t *testing.T) {
		conn, err := tls.Dial("tcp", address(s), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		require.NoError(t, err, "a client learns of the refusal with its first read")
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = conn.Read(make([]byte, 1))
		require.ErrorContains(t, err, "certificate required")
	})
	t.Run("without TLS", func(t *testing.T) {
		plain := encrypted
		plain.Encrypt = false
		d := exchange.NewDialer(plain)
		defer d.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		require.Error(t, d.Connect(ctx, address(s), exchange.NewRemote(id, func(error) {})))
	})
}

func TestAListenerNeedsAToken(t *testing.T) {
	for _, encrypt := range []bool{false, true} {
		_, err := exchange.Listen("127.0.0.1", exchange.Ports{}, exchange.Attempt{Job: "job", Attempt: 1, Encrypt: encrypt})
		require.Error(t, err)
	}
}

func TestPortsOfTheRangeAreUsedUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	taken := uint16(l.Addr().(*net.TCPAddr).Port)
	defer l.Close()
	_, err = exchange.Listen("127.0.0.1", exchange.Ports{First: taken, Last: taken}, attempt)
	require.ErrorIs(t, err, exchange.ErrNoPort)
	require.ErrorContains(t, err, "worker_ports")

	ports := exchange.Ports{First: taken, Last: taken + 20}
	for range 3 {
		s, err := exchange.Listen("127.0.0.1", ports, attempt)
		require.NoError(t, err)
		defer s.Close(false)
		require.Greater(t, s.Port(), int(taken))
		require.LessOrEqual(t, s.Port(), int(taken)+20)
	}
}
