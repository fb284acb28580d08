package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrInUse is returned when another process runs on the state directory.
var ErrInUse = errors.New("state directory is in use by another process")

// lock takes the directory's lock, which the operating system releases with the process at the latest.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w; stop it, or choose another directory", dir, ErrInUse)
		}
		return nil, fmt.Errorf("lock the state directory: %w", err)
	}
	return f, nil
}
