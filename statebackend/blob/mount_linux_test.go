package blob_test

import (
	"syscall"
	"testing"
)

// mountSmall mounts a file system of 64 KiB at dir, or skips the test.
func mountSmall(t *testing.T, dir string) (unmount func()) {
	if err := syscall.Mount("weir-test", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	return func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}
}
