package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-stream/weir/operator"
)

// scripted is a client whose initialisation is answered by a script.
type scripted struct {
	Producer
	answer func(ctx context.Context) error
	closed *atomic.Int64
}

func (s *scripted) Init(ctx context.Context) error { return s.answer(ctx) }
func (s *scripted) Close()                         { s.closed.Add(1) }

// scriptedLanes returns lanes whose initialisations are answered one after the other, at last always with the last answer.
func scriptedLanes(deadline time.Duration, answers ...error) (l *lanes, begun, closed *atomic.Int64) {
	begun, closed = new(atomic.Int64), new(atomic.Int64)
	l = newLanes(4, false, deadline, slog.New(slog.DiscardHandler), func(slot int) (*lane, error) {
		answer := answers[min(int(begun.Add(1)), len(answers))-1]
		id := fmt.Sprintf("id-%d", slot)
		return &lane{slot: slot, id: id, tracker: newTracker(id), producer: &scripted{closed: closed, answer: func(ctx context.Context) error {
			if errors.Is(answer, context.DeadlineExceeded) { // a broker that says nothing
				<-ctx.Done()
			}
			return answer
		}}}, nil
	})
	return l, begun, closed
}

// A spare id is initialised in the background; what passes is waited out there, each time by a new client.
func TestSpareIDIsInitialisedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begun, closed := scriptedLanes(10*time.Second, nil,
			kerr.CoordinatorLoadInProgress, kerr.ConcurrentTransactions, context.DeadlineExceeded, kerr.UnknownServerError, errors.New("connection lost"), nil)
		defer l.close()
		require.NoError(t, l.ready(t.Context()))
		first, err := l.acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute) // of synctest
		require.EqualValues(t, 7, begun.Load())
		require.EqualValues(t, 5, closed.Load(), "a client that could not initialise its id is given up")
		second, err := l.acquire(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, first.id, second.id)
		synctest.Wait()
	})
}

// Who needs an id waits for no longer than the deadline, and learns what is wrong; an idle sink outlives any outage.
func TestOutageOutlivesAnIdleSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{nil}
		for range 500 {
			answers = append(answers, kerr.CoordinatorNotAvailable)
		}
		l, begun, _ := scriptedLanes(10*time.Second, append(answers, nil)...)
		defer l.close()
		_, err := l.acquire(t.Context())
		require.NoError(t, err)
		begin := time.Now()
		_, err = l.acquire(t.Context())
		require.Equal(t, 10*time.Second, time.Since(begin))
		require.ErrorIs(t, err, kerr.CoordinatorNotAvailable)
		require.ErrorContains(t, err, "id-1")
		require.Equal(t, operator.ClassUnavailable, operator.ClassOf(err))
		require.Less(t, begun.Load(), int64(30), "with back-off")
		time.Sleep(time.Hour)
		_, err = l.acquire(t.Context())
		require.NoError(t, err)
	})
}

// What cannot pass fails the task when it needs the id.
func TestSpareIDThatIsDenied(t *testing.T) {
	for answer, class := range map[error]operator.Class{
		kerr.ProducerFenced:                     operator.ClassRestart,
		kerr.TransactionalIDAuthorizationFailed: operator.ClassRestart,
		kerr.UnsupportedVersion:                 operator.ClassFatal,
	} {
		synctest.Test(t, func(t *testing.T) {
			l, begun, _ := scriptedLanes(10*time.Second, nil, answer)
			defer l.close()
			_, err := l.acquire(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Minute)
			require.EqualValues(t, 2, begun.Load(), "asked once")
			begin := time.Now()
			_, err = l.acquire(t.Context())
			require.ErrorIs(t, err, answer)
			require.Equal(t, class, operator.ClassOf(err))
			require.Zero(t, time.Since(begin))
		})
	}
}

// An initialisation under way ends with the sink.
func TestCloseEndsAnInitialisation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begun, closed := scriptedLanes(time.Hour, context.DeadlineExceeded)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.ready(ctx), context.DeadlineExceeded)
		begin := time.Now()
		l.close()
		require.Zero(t, time.Since(begin))
		require.Equal(t, begun.Load(), closed.Load())
	})
}
