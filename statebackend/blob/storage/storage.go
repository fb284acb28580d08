// Package storage opens checkpoint storage of every kind. The servers and the command line import it; what is linked into job binaries
// must not, since it brings the clients of object stores with it.
package storage

import (
	"context"
	"fmt"
	"strings"

	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/hdfs"
	"github.com/weir-stream/weir/statebackend/blob/s3"
)

// OpenURL opens the bucket at an address: file:///path, s3://bucket/prefix or hdfs://namenode/path.
func OpenURL(ctx context.Context, address string) (blob.Bucket, error) {
	scheme, _, _ := strings.Cut(address, "://")
	switch scheme {
	case "s3":
		return s3.OpenURL(ctx, address)
	case "hdfs":
		return hdfs.OpenURL(ctx, address)
	case "file":
		return blob.OpenURL(ctx, address)
	default:
		return nil, unknown(address)
	}
}

func unknown(address string) error {
	return fmt.Errorf("checkpoint storage %q: the address must begin with file:///absolute/path, s3://bucket/prefix or hdfs://namenode/path", address)
}
