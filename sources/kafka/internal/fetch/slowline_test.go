package fetch_test

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/sources/kafka/internal/fetch"
)

// slowListener accepts connections over which answers arrive slowly.
type slowListener struct{ net.Listener }

func (l slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return slowConn{c}, err
}

type slowConn struct{ net.Conn }

// Write writes 50 kB in a second.
func (c slowConn) Write(b []byte) (n int, err error) {
	for chunk := range slices.Chunk(b, 4<<10) {
		time.Sleep(time.Duration(len(chunk)) * 20 * time.Microsecond)
		m, err := c.Conn.Write(chunk)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// TestASlowLine: an answer of all that is asked for at first does not arrive in time, however often it is asked for.
func TestASlowLine(t *testing.T) {
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return slowListener{l}, err
	}))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	c := &cluster{fake, t, cl}
	const batches, records = 32, 500
	for b := range batches { // of some 6 kB each
		c.write(0, b*records+1, (b+1)*records)
	}
	r := c.readWith(fetch.Config{Memory: 1 << 20, Total: 256 << 10, Partition: 256 << 10}, map[int32]int64{0: 0}, kgo.RequestTimeoutOverhead(time.Second))
	r.untilValues(0, batches*records)
}
