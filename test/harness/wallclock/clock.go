package wallclock

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"time"
)

// Clock is the offset of the wall clock of some processes.
type Clock struct{ path string }

// New makes a clock that is off by the given offset.
func New(dir, name string, offset time.Duration) (*Clock, error) {
	c := &Clock{filepath.Join(dir, name)}
	return c, c.write(offset, os.O_CREATE)
}

// Set makes the clock of every process that uses it jump to the machine's time plus the offset.
func (c *Clock) Set(offset time.Duration) error { return c.write(offset, 0) }

// Env is what the environment of a process must hold to use the clock.
func (c *Clock) Env() string { return Env + "=" + c.path }

// write replaces the eight bytes by one call, so that no reader sees a half of them.
func (c *Clock) write(offset time.Duration, flags int) error {
	f, err := os.OpenFile(c.path, os.O_WRONLY|flags, 0o644)
	if err != nil {
		return err
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(offset))
	if _, err := f.WriteAt(b[:], 0); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
