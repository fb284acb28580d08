package segmentstore

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// content identifies what a file must hold.
type content struct {
	size uint64
	crc  uint32
}

// sidecar vouches for a cached file: it was read whole since the machine booted, and neither it nor its inode changed since.
type sidecar struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Size    uint64 `json:"size"`
	CRC32C  uint32 `json:"crc32c"`
	Inode   uint64 `json:"inode"`
	MTime   int64  `json:"mtime_ns"`
	Boot    string `json:"boot"`
}

const sidecarVersion = 1

// bootID identifies the machine's current boot; random where the system has no such thing, so that nothing old is trusted.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return rand.Text()
	}
	return strings.TrimSpace(string(b))
}

// vouched reports whether the file at path may be used unread for want.
func (s *Store) vouched(path, sidecarPath string, want content) bool {
	raw, err := os.ReadFile(sidecarPath)
	if err != nil {
		return false
	}
	var c sidecar
	if json.Unmarshal(raw, &c) != nil || c.Version != sidecarVersion {
		return false
	}
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	return c.Size == want.size && c.CRC32C == want.crc && c.Boot == s.boot &&
		uint64(info.Size()) == c.Size && inode(info) == c.Inode && info.ModTime().UnixNano() == c.MTime
}

// vouch writes the sidecar of a file just read whole.
func (s *Store) vouch(path, sidecarPath, name string, want content) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(sidecar{
		Version: sidecarVersion, Name: name, Size: want.size, CRC32C: want.crc,
		Inode: inode(info), MTime: info.ModTime().UnixNano(), Boot: s.boot,
	})
	if err != nil {
		return err
	}
	temp := filepath.Join(s.cfg.Dir, rand.Text()+tempSuffix)
	if err := os.WriteFile(temp, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, sidecarPath)
}

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// verifyFile reads the file at path whole unless its size is wrong already.
func verifyFile(path string, want content) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if uint64(info.Size()) != want.size {
		return fmt.Errorf("%w: %d bytes instead of %d", ErrCorrupt, info.Size(), want.size)
	}
	_, err = io.Copy(io.Discard, &checkedReader{r: f, want: want})
	return err
}

// checkedReader passes r through and turns its end into ErrCorrupt when the content was not the wanted one.
type checkedReader struct {
	r    io.Reader
	want content
	size uint64
	crc  uint32
}

func (c *checkedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.size += uint64(n)
	c.crc = crc32.Update(c.crc, castagnoli, p[:n])
	if c.size > c.want.size {
		return n, fmt.Errorf("%w: more than %d bytes", ErrCorrupt, c.want.size)
	}
	if errors.Is(err, io.EOF) {
		switch {
		case c.size != c.want.size:
			return n, fmt.Errorf("%w: %d bytes instead of %d", ErrCorrupt, c.size, c.want.size)
		case c.crc != c.want.crc:
			return n, fmt.Errorf("%w: CRC32C %08x instead of %08x", ErrCorrupt, c.crc, c.want.crc)
		}
	}
	return n, err
}

// touch records a use for the eviction order across restarts.
func touch(sidecarPath string, now time.Time) error { return os.Chtimes(sidecarPath, now, now) }
