package segment

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// buildBloom makes a filter as writers of the first two formats did.
func buildBloom(hashes []uint64) []byte {
	f := make([]byte, (len(hashes)*bloomBits/bloomBody+1)*bloomBlock)
	for _, h := range hashes {
		bloomProbe(bloomFind(f, h)[4:], h, func(b *byte, bit byte) bool {
			*b |= bit
			return true
		})
	}
	for block := f; len(block) > 0; block = block[bloomBlock:] {
		binary.BigEndian.PutUint32(block, Checksum(block[4:bloomBlock]))
	}
	return f
}

func TestADamagedOldFilterHidesNothing(t *testing.T) {
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

func TestADamagedFilterHidesNothing(t *testing.T) {
	hashes := make([]uint64, 3000)
	for i := range hashes {
		hashes[i] = Hash(binary.BigEndian.AppendUint64(nil, uint64(i)))
	}
	f := buildFilter(hashes)
	for _, h := range hashes {
		require.True(t, asked(f, h))
	}
	moved := append(append([]byte(nil), f[lineSize:]...), f[:lineSize]...) // sound lines in other places
	for at := 0; at < len(f); at += lineSize {
		clear(f[at+4 : at+lineSize-1])
	}
	for _, h := range hashes {
		require.True(t, asked(f, h))
		require.True(t, asked(moved, h))
	}
}

func TestFiltersRuleOutMostAbsentKeys(t *testing.T) {
	for _, n := range []int{10, 1000, 100_000} {
		hashes := make([]uint64, n)
		for i := range hashes {
			hashes[i] = Hash(binary.BigEndian.AppendUint64(nil, uint64(i)))
		}
		f := buildFilter(hashes)
		wrong := 0
		for i := range 100_000 {
			if asked(f, Hash(binary.BigEndian.AppendUint64(nil, uint64(n+i)))) {
				wrong++
			}
		}
		t.Logf("%d keys: %.2f %% of absent keys are taken for present", n, float64(wrong)/1000)
		require.Less(t, wrong, 2000) // 2 %
	}
}

func asked(f []byte, h uint64) bool {
	bits := probesOf(h)
	return filterHas(f, h, &bits)
}
