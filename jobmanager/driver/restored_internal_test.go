package driver

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

func TestTheLastStartIsToldByPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStatus()
		require.Nil(t, s.figures().Restore, "a former leader saw it")
		failed := time.Now()
		time.Sleep(1 * time.Second)
		s.restoreBegins(3, 17, failed)
		phases := func() map[string]time.Duration {
			m := map[string]time.Duration{}
			for _, p := range s.figures().Restore.GetPhases() {
				m[p.GetName()] = time.Duration(p.GetDurationUs()) * time.Microsecond
			}
			return m
		}
		require.Equal(t, map[string]time.Duration{"schedule": time.Second}, phases())
		us := func(d time.Duration) *uint64 { return proto.Uint64(uint64(d.Microseconds())) }
		ms := time.Millisecond
		s.restored(2, "a", &workerv1.Restored{OpenUs: us(time.Hour)}) // of another attempt
		s.restored(3, "a", &workerv1.Restored{PlanUs: us(10 * ms), ReadUs: us(20 * ms), OpenUs: us(30 * ms)})
		s.restored(3, "b", &workerv1.Restored{PlanUs: us(5 * ms), ReadUs: us(20 * ms), OpenUs: us(70 * ms)})
		time.Sleep(300 * ms)
		s.restoreReaches(3, allPrepared)
		time.Sleep(50 * ms)
		s.restored(3, "a", &workerv1.Restored{PlanUs: us(10 * ms), ReadUs: us(20 * ms), OpenUs: us(30 * ms), FenceUs: us(15 * ms), ConnectUs: us(ms)})
		s.restoreReaches(2, allStarted)
		s.restoreReaches(3, allStarted)
		r := s.figures().Restore
		require.False(t, r.GetComplete())
		require.Equal(t, uint64(1_350_000), r.GetTotalUs())
		time.Sleep(25 * ms)
		for range 2 { // the first one counts
			s.restored(3, "a", &workerv1.Restored{PlanUs: us(10 * ms), ReadUs: us(20 * ms), OpenUs: us(30 * ms), FenceUs: us(15 * ms), FirstRecordUs: us(25 * ms)})
			time.Sleep(time.Second)
		}
		require.Equal(t, map[string]time.Duration{
			"schedule": time.Second, "launch": 200 * ms, "plan": 10 * ms, "read": 20 * ms, "open": 70 * ms, "fence": 15 * ms, "connect": 35 * ms, "first record": 25 * ms,
		}, phases())
		r = s.figures().Restore
		require.True(t, r.GetComplete())
		require.Equal(t, uint64(1_375_000), r.GetTotalUs())
		require.EqualValues(t, 3, r.GetAttempt())
		require.EqualValues(t, 17, r.GetCheckpoint())
	})
}
