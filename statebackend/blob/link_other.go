//go:build !linux

package blob

import "os"

// linkExclusive gives the file at from the name to, unless that is taken. The old name stays.
func linkExclusive(from, to string) error { return os.Link(from, to) }
