package segment_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/weir-stream/weir/statebackend/segment"
)

// bbolt opens the files, finds nothing wrong with them, and may even write to them. In the order of its keys it has the blocks that a cursor
// walks over.
func TestFilesAreThoseOfBbolt(t *testing.T) {
	long := strings.Repeat("long", 300)
	for name, size := range map[string]struct {
		rows       int
		key, value string
	}{
		"no row":                     {},
		"one row":                    {rows: 1},
		"a page of blocks":           {rows: 300},
		"branches above branches":    {rows: 40_000, value: strings.Repeat("v", 400), key: strings.Repeat("k", 80)},
		"blocks of several pages":    {rows: 50, value: strings.Repeat("v", 70_000)},
		"keys that are cut":          {rows: 500, key: long},
		"keys cut, and large values": {rows: 50, key: long, value: strings.Repeat("v", 5_000)},
	} {
		t.Run(name, func(t *testing.T) {
			var rows []row
			for i := range size.rows {
				rows = append(rows, row{key: key(i%5, 1, size.key+fmt.Sprintf("%06d", i)), value: size.value})
			}
			rows = sorted(rows)
			path := filepath.Join(t.TempDir(), "segment")
			result := build(t, path, 0, rows, segment.Drop{State: 1, Namespace: 7})
			require.Equal(t, path, result.Path)
			s := open(t, result)
			require.True(t, slices.Equal(rows, read(t, s)))
			require.NoError(t, s.Prepare())
			require.True(t, slices.Equal(rows, read(t, s)))
			require.NoError(t, s.Close())

			db, err := bbolt.Open(path, 0o644, &bbolt.Options{NoFreelistSync: true})
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			require.NoError(t, db.View(func(tx *bbolt.Tx) error {
				for err := range tx.Check() {
					require.NoError(t, err)
				}
				require.Equal(t, int64(result.Size), tx.Size())
				blocks := tx.Bucket([]byte("blocks"))
				if size.rows > 10_000 {
					require.Greater(t, blocks.Stats().Depth, 2)
				}
				require.NotEmpty(t, tx.Bucket([]byte("meta")).Get([]byte("header")))
				n := 0
				require.NoError(t, blocks.ForEach(func(k, v []byte) error {
					require.Equal(t, v, blocks.Get(k))
					n++
					return nil
				}))
				require.Equal(t, size.rows > 0, n > 0)
				return nil
			}))
			require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte("blocks")).Put([]byte("another"), []byte("pair"))
			}))
		})
	}
}
