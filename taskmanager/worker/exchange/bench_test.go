package exchange_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/taskmanager/worker/exchange"
)

// The batches of a benchmark: 512 records of 128 bytes.
const benchRecords, benchSize = 512, 128

// flat is a batch that is encoded already, so that the exchange alone is measured.
type flat []byte

func (f flat) Len() int { return benchRecords }
func (f flat) AppendEncoded(dst []byte, _ int) ([]byte, int, error) {
	return append(dst, f...), f.Len(), nil
}
func (f flat) Release() {}

func benchmark(b *testing.B, s exchange.Sender, in *exchange.Inbox) {
	batch := make(flat, benchRecords*benchSize)
	done := make(chan struct{})
	b.SetBytes(benchRecords * benchSize)
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		defer close(done)
		for n := 0; n < b.N; {
			_, e, ok := in.Poll()
			if !ok {
				<-in.Wake()
				continue
			}
			e.Done()
			n++
		}
	}()
	for range b.N {
		if err := s.Send(batch); err != nil {
			b.Error(err)
			return
		}
	}
	<-done
	b.ReportMetric(float64(b.N)*benchRecords/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkLocal(b *testing.B) {
	in := exchange.NewInbox(1)
	benchmark(b, exchange.NewLocal(in, 0), in)
}

func BenchmarkRemote(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchmarkRemote(b, attempt) })
	b.Run("encrypted", func(b *testing.B) { benchmarkRemote(b, encrypted) })
}

func benchmarkRemote(b *testing.B, attempt exchange.Attempt) {
	in := exchange.NewInbox(1)
	id := exchange.ID{Edge: "e"}
	s, err := exchange.Listen("127.0.0.1", exchange.Ports{}, attempt)
	require.NoError(b, err)
	defer s.Close(false)
	s.Register(id, in, 0, func(error) {})
	d := exchange.NewDialer(attempt)
	defer d.Close()
	r := exchange.NewRemote(id, func(error) {})
	require.NoError(b, d.Connect(context.Background(), address(s), r))
	benchmark(b, r, in)
}
