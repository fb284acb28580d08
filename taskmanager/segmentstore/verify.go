package segmentstore

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// content identifies what a file must hold.
type content struct {
	size uint64
	crc  uint32
	sum  string // SHA-256 in hexadecimal; empty when it is not known
}

func contentOf(s *snapshotv1.Segment) content {
	return content{size: s.GetSize(), crc: s.GetCrc32C(), sum: hex.EncodeToString(s.GetSha256())}
}

// sidecar vouches for a cached file: it was read whole since the machine booted, and neither it nor its inode changed since.
type sidecar struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Size    uint64 `json:"size"`
	CRC32C  uint32 `json:"crc32c"`
	SHA256  string `json:"sha256,omitempty"` // absent in those of older versions
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
	c, ok := readSidecar(sidecarPath)
	if !ok {
		return false
	}
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	return c.Size == want.size && c.CRC32C == want.crc && (want.sum == "" || c.SHA256 == want.sum) && c.Boot == s.boot &&
		uint64(info.Size()) == c.Size && inode(info) == c.Inode && info.ModTime().UnixNano() == c.MTime
}

func readSidecar(path string) (c sidecar, ok bool) {
	raw, err := os.ReadFile(path)
	return c, err == nil && json.Unmarshal(raw, &c) == nil && c.Version == sidecarVersion
}

// doubt makes the sidecar vouch for nothing until its file has been read whole. It keeps what it says of the content.
func doubt(path string) error {
	c, ok := readSidecar(path)
	if !ok {
		return nil
	}
	c.Boot = ""
	return writeSidecar(path, c)
}

func writeSidecar(path string, c sidecar) error {
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(path), rand.Text()+tempSuffix)
	if err := os.WriteFile(temp, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// vouch writes the sidecar of a file just read whole.
func (s *Store) vouch(path, sidecarPath, name string, want content) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return writeSidecar(sidecarPath, sidecar{
		Version: sidecarVersion, Name: name, Size: want.size, CRC32C: want.crc, SHA256: want.sum,
		Inode: inode(info), MTime: info.ModTime().UnixNano(), Boot: s.boot,
	})
}

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// verifyFile reads the file at path whole unless its size is wrong already. It completes want with what it finds.
func verifyFile(path string, want *content, pace func(int) error) error {
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
	r := newCheckedReader(f, *want, pace)
	_, err = io.Copy(io.Discard, r)
	if err == nil {
		want.sum = r.digest()
	}
	return err
}

// checkedReader passes r through and turns its end into ErrCorrupt when the content was not the wanted one.
type checkedReader struct {
	r    io.Reader
	want content
	size uint64
	crc  uint32
	sha  hash.Hash
	pace func(n int) error // called with what was read; nil for none
}

func newCheckedReader(r io.Reader, want content, pace func(n int) error) *checkedReader {
	return &checkedReader{r: r, want: want, sha: sha256.New(), pace: pace}
}

// digest returns the SHA-256 of what was read.
func (c *checkedReader) digest() string { return hex.EncodeToString(c.sha.Sum(nil)) }

func (c *checkedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.size += uint64(n)
	c.crc = crc32.Update(c.crc, castagnoli, p[:n])
	c.sha.Write(p[:n])
	if c.size > c.want.size {
		return n, fmt.Errorf("%w: more than %d bytes", ErrCorrupt, c.want.size)
	}
	if errors.Is(err, io.EOF) {
		switch {
		case c.size != c.want.size:
			return n, fmt.Errorf("%w: %d bytes instead of %d", ErrCorrupt, c.size, c.want.size)
		case c.crc != c.want.crc:
			return n, fmt.Errorf("%w: CRC32C %08x instead of %08x", ErrCorrupt, c.crc, c.want.crc)
		case c.want.sum != "" && c.digest() != c.want.sum:
			return n, fmt.Errorf("%w: SHA-256 %s instead of %s", ErrCorrupt, c.digest(), c.want.sum)
		}
	}
	if c.pace != nil && n > 0 {
		if perr := c.pace(n); perr != nil {
			return n, perr
		}
	}
	return n, err
}

// touch records a use for the eviction order across restarts.
func touch(sidecarPath string, now time.Time) error { return os.Chtimes(sidecarPath, now, now) }
