package windowing

import (
	"testing"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/operator"
)

func firedSnapshot(first, last uint32, now int64) *snapshotv1.OperatorSnapshot {
	return &snapshotv1.OperatorSnapshot{
		Keyed: &snapshotv1.KeyedSnapshot{KeyGroups: &snapshotv1.KeyGroupRange{First: first, Last: last}}, OperatorStates: saveFired(now),
	}
}

func TestEachKeyGroupFiresOnFromWhereItsSubtaskWas(t *testing.T) {
	restored := []*snapshotv1.OperatorSnapshot{firedSnapshot(0, 3, 100), firedSnapshot(4, 7, 90), firedSnapshot(8, 9, operator.MinWatermark)}
	f, err := restoreFired(restored, keygroup.Range{First: 2, Last: 6})
	require.NoError(t, err)
	require.EqualValues(t, 90, f.least)
	require.EqualValues(t, 100, f.most)
	require.EqualValues(t, 100, f.until(3))
	require.EqualValues(t, 90, f.until(4))

	f, err = restoreFired(restored, keygroup.Range{First: 0, Last: 9})
	require.NoError(t, err)
	require.Equal(t, operator.MinWatermark, f.least, "a subtask that has fired nothing")

	f, err = restoreFired(nil, keygroup.Range{First: 0, Last: 9})
	require.NoError(t, err)
	require.Equal(t, operator.MinWatermark, f.least)
	require.Equal(t, operator.MinWatermark, f.most)
}

func TestMalformedFiredStateIsRefused(t *testing.T) {
	for name, change := range map[string]func(*snapshotv1.OperatorState){
		"version": func(s *snapshotv1.OperatorState) { s.Version = 2 },
		"entries": func(s *snapshotv1.OperatorState) { s.Entries = nil },
		"value":   func(s *snapshotv1.OperatorState) { s.Entries[0].Value = []byte{0x80} },
	} {
		t.Run(name, func(t *testing.T) {
			s := firedSnapshot(0, 9, 5)
			change(s.OperatorStates[0])
			_, err := restoreFired([]*snapshotv1.OperatorSnapshot{s}, keygroup.Range{First: 0, Last: 9})
			require.ErrorIs(t, err, ErrState)
		})
	}
}
