package filesink

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/sinks"
)

func FuzzCommittable(f *testing.F) {
	f.Add([]byte(`{"sink":"out-0123","attempt":1,"subtask":0,"sequence":3,"files":[{"pending":"p","final":"f","records":2}]}`))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, err := decodeCommittable(sinks.Committable{Version: 1, Payload: payload})
		if err != nil {
			require.ErrorIs(t, err, errMalformed)
			return
		}
		again, err := p.encode()
		require.NoError(t, err)
		_, err = decodeCommittable(again)
		require.NoError(t, err)
	})
}

func TestCommittableOfALaterVersionIsRefused(t *testing.T) {
	_, err := decodeCommittable(sinks.Committable{Version: 2})
	require.ErrorContains(t, err, "version 2")
}

func TestLeftoversAreTheSinksOwn(t *testing.T) {
	w := writer{"out-01", 12, 3}
	l, ok := parseLeftover("out-01", w.pendingName(5, 0))
	require.True(t, ok)
	require.Equal(t, leftover{w, 5, true}, l)
	for _, name := range []string{fenceName("out-01"), w.settledName(), ".weir/out-01/x.3/000001-000.pending", ".weir/out-011/12.3/000001-000.pending", "out-01-12-3-000001-000.jsonl"} {
		_, ok := parseLeftover("out-01", name)
		require.False(t, ok, name)
	}
}
