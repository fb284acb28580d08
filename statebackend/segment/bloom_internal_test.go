package segment

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADamagedFilterHidesNothing(t *testing.T) {
	hashes := make([]uint64, 3000)
	for i := range hashes {
		hashes[i] = Hash(binary.BigEndian.AppendUint64(nil, uint64(i)))
	}
	f := buildBloom(hashes)
	require.NoError(t, checkBloom(f))
	for at := 0; at < len(f); at += bloomBlock {
		clear(f[at+4 : at+bloomBlock-1])
	}
	for _, h := range hashes {
		require.True(t, bloomHas(f, h))
	}
	require.ErrorIs(t, checkBloom(f[1:]), ErrCorrupt)
	require.ErrorIs(t, checkBloom(nil), ErrCorrupt)
}
