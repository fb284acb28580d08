package blobstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"github.com/weir-stream/weir/sinks"
	filesink "github.com/weir-stream/weir/sinks/file"
	"github.com/weir-stream/weir/sinks/file/blobstore"
	"github.com/weir-stream/weir/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func place(dir string) filesink.Place {
	return blobstore.Bucket(dir, func(context.Context) (*blob.Bucket, error) {
		b, err := fileblob.OpenBucket(dir, &fileblob.Options{NoTempDir: true})
		if err != nil {
			return nil, err
		}
		return blob.PrefixedBucket(b, "numbers/"), nil
	})
}

func keys(ctx context.Context, t *testing.T, dir string) (finished, unfinished []string, b *blob.Bucket) {
	t.Helper()
	b, err := fileblob.OpenBucket(dir, nil)
	require.NoError(t, err)
	for it := b.List(nil); ; {
		o, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			return finished, unfinished, b
		}
		require.NoError(t, err)
		switch {
		case !strings.Contains(o.Key, "/.weir/"):
			finished = append(finished, o.Key)
		case strings.HasSuffix(o.Key, ".pending"):
			unfinished = append(unfinished, o.Key)
		}
	}
}

func TestConformance(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Output {
		dir := t.TempDir()
		return sinktest.Output{
			Sink: func() sinks.Sink[int] { return filesink.New(place(dir), filesink.JSONLines[int]()) },
			Read: func(ctx context.Context) (all []int, err error) {
				names, _, b := keys(ctx, t, dir)
				defer b.Close()
				for _, name := range names {
					data, err := b.ReadAll(ctx, name)
					if err != nil {
						return nil, err
					}
					for line := range bytes.Lines(data) {
						var n int
						if _, err := fmt.Sscan(string(line), &n); err != nil {
							return nil, err
						}
						all = append(all, n)
					}
				}
				return all, nil
			},
			Settled: func(ctx context.Context) error {
				tick := time.NewTicker(10 * time.Millisecond)
				defer tick.Stop()
				for {
					_, left, b := keys(ctx, t, dir)
					if err := b.Close(); err != nil || len(left) == 0 {
						return err
					}
					select {
					case <-ctx.Done():
						return fmt.Errorf("%v are left", left)
					case <-tick.C:
					}
				}
			},
		}
	})
}

func TestStore(t *testing.T) {
	ctx := t.Context()
	s, err := place(t.TempDir()).Open(ctx)
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Read(ctx, "none")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, s.Publish(ctx, "none", "some"), fs.ErrNotExist)
	require.NoError(t, s.Remove(ctx, "none"))
	f, err := s.Create(ctx, "a/b.pending")
	require.NoError(t, err)
	_, err = f.Write([]byte("x"))
	require.NoError(t, err)
	there, err := s.Exists(ctx, "a/b.pending")
	require.NoError(t, err)
	require.False(t, there, "an object is there when it is complete")
	require.NoError(t, f.Discard())
	f, err = s.Create(ctx, "a/b.pending")
	require.NoError(t, err)
	_, err = f.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, f.Seal(ctx))
	require.NoError(t, s.Publish(ctx, "a/b.pending", "b"))
	got, err := s.Read(ctx, "b")
	require.NoError(t, err)
	require.Equal(t, "x", string(got))
}

func TestBucketThatIsNotThere(t *testing.T) {
	_, err := place(t.TempDir() + "/none").Open(t.Context())
	require.Error(t, err)
	require.ErrorContains(t, blobstore.Bucket("x", nil).Validate(), "no function given")
}
