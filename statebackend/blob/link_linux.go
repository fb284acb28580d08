package blob

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// linkExclusive gives the file at from the name to, unless that is taken. The old name may stay.
func linkExclusive(from, to string) error {
	err := os.Link(from, to)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		// A file system without hard links.
		return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	}
	return err
}
