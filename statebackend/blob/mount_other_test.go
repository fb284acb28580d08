//go:build !linux

package blob_test

import "testing"

func mountSmall(t *testing.T, _ string) (unmount func()) {
	t.Skip("needs Linux")
	return nil
}
