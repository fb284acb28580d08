package fetch_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/weir-stream/weir/sources/kafka/internal/fetch"
)

// TestATruncatedPartitionIsTold: the new leader has less of an epoch than was read. The one that has all of it is read on from.
func TestATruncatedPartitionIsTold(t *testing.T) {
	c := newCluster(t, 2, 1)
	require.NoError(t, c.MoveTopicPartition("t", 0, 0))
	c.write(0, 1, 5)
	var truncated atomic.Bool
	asked := c.epochs(func(_ string, _ int32, end int64) int64 {
		if truncated.Load() {
			return 4
		}
		return end
	})
	r := c.read(fetch.Config{}, map[int32]int64{0: 0})
	r.untilValues(0, 5)
	require.Zero(t, asked.Load())
	require.NoError(t, c.MoveTopicPartition("t", 0, 1))
	c.write(0, 6, 7)
	r.untilValues(0, 7)
	require.NotZero(t, asked.Load(), "the new leader is asked whether it has what was read")
	truncated.Store(true)
	require.NoError(t, c.MoveTopicPartition("t", 0, 0))
	r.until(func() bool { return r.errs[0] != nil })
	require.ErrorIs(t, r.errs[0], fetch.ErrTruncated)
	require.ErrorContains(t, r.errs[0], "offset 7 comes next")
	require.ErrorContains(t, r.errs[0], "ends at offset 4")
	require.Equal(t, numbers(1, 7), r.values[0])
}

// TestWhatWasReadBeforeTheStartIsAskedFor: a partition that was cut off while nobody read it is as long again by now.
func TestWhatWasReadBeforeTheStartIsAskedFor(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.write(0, 1, 9)
	epoch := c.PartitionInfo("t", 0).Epoch
	var ends atomic.Int64
	asked := c.epochs(func(string, int32, int64) int64 { return ends.Load() })
	for end, text := range map[int64]string{3: "ends at offset 3", -1: "knows nothing"} {
		ends.Store(end)
		r := c.readFrom(epoch, fetch.Config{}, map[int32]int64{0: 5})
		r.until(func() bool { return r.errs[0] != nil })
		require.ErrorIs(t, r.errs[0], fetch.ErrTruncated)
		require.ErrorContains(t, r.errs[0], text)
		require.Empty(t, r.values[0])
	}
	ends.Store(5)
	asked.Store(0)
	r := c.readFrom(epoch, fetch.Config{}, map[int32]int64{0: 5})
	r.until(func() bool { return len(r.values[0]) == 4 })
	require.Equal(t, numbers(6, 9), r.values[0])
	require.EqualValues(t, 1, asked.Load())
}

// TestALeaderThatCannotBeAskedIsTrusted: not every broker knows of epochs.
func TestALeaderThatCannotBeAskedIsTrusted(t *testing.T) {
	old := kversion.Stable()
	old.SetMaxKeyVersion(int16(kmsg.OffsetForLeaderEpoch), -1)
	c := newCluster(t, 1, 1, kfake.MaxVersions(old))
	c.write(0, 1, 9)
	r := c.readFrom(c.PartitionInfo("t", 0).Epoch, fetch.Config{}, map[int32]int64{0: 5})
	r.until(func() bool { return len(r.values[0]) == 4 })
	require.Equal(t, numbers(6, 9), r.values[0])
}
