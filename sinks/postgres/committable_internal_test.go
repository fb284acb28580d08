package postgressink

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/sinks"
)

func FuzzCommittable(f *testing.F) {
	f.Add([]byte(`{"sink":"c.j.out","attempt":1,"subtask":0,"sequence":3,"rows":2,"server":"1","database":"d","schema":"weir","table":["t"]}`))
	f.Add([]byte(`{"sink":"c.j.out","attempt":1,"subtask":0,"sequence":3,"rows":2,"schema":"weir","table":["t"],"staging":{"table":"s","columns":["a"],"keys":["a"]}}`))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, err := decodeCommittable(sinks.Committable{Version: 1, Payload: payload})
		if err != nil {
			require.ErrorIs(t, err, errMalformed)
			return
		}
		again, err := p.encode()
		require.NoError(t, err)
		require.True(t, json.Valid(again.Payload))
	})
}

func TestCommittableOfALaterVersionIsRefused(t *testing.T) {
	_, err := decodeCommittable(sinks.Committable{Version: 2})
	require.ErrorContains(t, err, "version 2")
	require.NotErrorIs(t, err, errMalformed)
}
