package blob_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/statebackend/blob"
)

func TestAddressesKeepTheirQuery(t *testing.T) {
	for _, c := range []struct{ base, name, joined string }{
		{"file:///a/b", "c", "file:///a/b/c"},
		{"file:///a/b/", "c", "file:///a/b/c"},
		{"s3://bucket", "c", "s3://bucket/c"},
		{"s3://bucket/p?region=x&endpoint=http://h:1/z", "c", "s3://bucket/p/c?region=x&endpoint=http://h:1/z"},
	} {
		require.Equal(t, c.joined, blob.Join(c.base, c.name))
		dir, name := blob.Split(c.joined)
		require.Equal(t, c.name, name)
		require.Equal(t, c.joined, blob.Join(dir, name))
	}
}
