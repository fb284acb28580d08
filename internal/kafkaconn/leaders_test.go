package kafkaconn_test

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/internal/testca"
	"github.com/weir-stream/weir/operator"
)

// A client finds its way around one broker of several with an expired certificate, and says nothing.
func TestOneBrokerOfThreeWithAnExpiredCertificate(t *testing.T) {
	authority, err := testca.New("test")
	require.NoError(t, err)
	listener := func(validFor time.Duration) func(network, address string) (net.Listener, error) {
		made, err := authority.Node("broker", time.Now().Add(validFor))
		require.NoError(t, err)
		pair, err := tls.X509KeyPair(made.Cert, made.Key)
		require.NoError(t, err)
		return func(network, address string) (net.Listener, error) {
			return tls.Listen(network, address, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
		}
	}
	good, expired := listener(time.Hour), listener(-time.Hour)
	made := 0
	start := func(brokenNumber int) *kgo.Client {
		made = 0
		cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(64, "totals"), kfake.ListenFn(func(network, address string) (net.Listener, error) {
			if made++; made == brokenNumber {
				return expired(network, address)
			}
			return good(network, address)
		}))
		require.NoError(t, err)
		t.Cleanup(cluster.Close)
		opts, err := kafkaconn.Security{TLS: &kafkaconn.TLS{CA: string(authority.PEM())}}.Options()
		require.NoError(t, err)
		cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(cluster.ListenAddrs()[0]))...)
		require.NoError(t, err)
		t.Cleanup(cl.Close)
		return cl
	}
	_, err = kafkaconn.FindTopics(t.Context(), start(0), 10*time.Second, kafkaconn.Write, "totals")
	require.NoError(t, err)

	for range 8 { // a request that any broker can answer may meet the broken one by chance
		cl := start(3)
		require.NoError(t, cl.Ping(t.Context()), "the seed broker is fine")
		_, err = kafkaconn.FindTopics(t.Context(), cl, 10*time.Second, kafkaconn.Write, "totals")
		require.ErrorIs(t, err, operator.ErrRefused)
		require.ErrorContains(t, err, "certificate has expired")
		require.Regexp(t, `broker 127\.0\.0\.1:\d+`, err.Error())
	}
}
