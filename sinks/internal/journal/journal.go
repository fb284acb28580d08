package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
)

// Version is the version of the format, which is in the header.
const Version = 1

const (
	magic = "WEIRREC"
	// bufferBytes bounds what a writer holds in memory, but for a record that is larger.
	bufferBytes = 64 << 10
)

var header = append([]byte(magic), Version)

// ErrFormat is wrapped by the error about a file that is none, of an unknown version, or cut off.
var ErrFormat = errors.New("malformed file of kept records")

// ErrChecksum is wrapped by the error about a file whose content is not what was written.
var ErrChecksum = errors.New("file of kept records differs from what was written")

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// Sealed is a finished file.
type Sealed struct {
	// Path is the local file; empty when the content is inline.
	Path    string
	Inline  []byte
	Size    uint64
	CRC32C  uint32
	Records uint64
}

// Writer writes one file after the other.
type Writer struct {
	// inline is the size in bytes up to which a file is returned by value.
	inline int
	buf    []byte
	file   *os.File
	path   string
	flushed,
	records uint64
	crc uint32
}

// NewWriter returns a writer that returns files up to inline bytes by value.
func NewWriter(inline int) *Writer {
	w := &Writer{inline: min(inline, bufferBytes), buf: make([]byte, 0, bufferBytes+bufferBytes/4)}
	w.reset()
	return w
}

func (w *Writer) reset() {
	w.buf = append(w.buf[:0], header...)
	w.file, w.path, w.flushed, w.records, w.crc = nil, "", 0, 0, 0
}

// Records is how many records the current file has.
func (w *Writer) Records() uint64 { return w.records }

// Append adds a record to the current file. path names the file, which must not exist, in case that it is begun now.
func (w *Writer) Append(path func() string, record []byte) error {
	w.buf = binary.AppendUvarint(w.buf, uint64(len(record))+1)
	w.buf = append(w.buf, record...)
	w.records++
	if len(w.buf) < bufferBytes {
		return nil
	}
	return w.flush(path)
}

func (w *Writer) flush(path func() string) error {
	if w.file == nil {
		name := path()
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		w.file, w.path = f, name
	}
	w.crc = crc32.Update(w.crc, castagnoli(), w.buf)
	n, err := w.file.Write(w.buf)
	w.flushed += uint64(n)
	if cap(w.buf) > 2*bufferBytes {
		w.buf = make([]byte, 0, bufferBytes+bufferBytes/4) // a large record has passed
	}
	w.buf = w.buf[:0]
	return err
}

// Seal finishes the current file and begins the next one. Whoever makes the file durable syncs it.
func (w *Writer) Seal(path func() string) (Sealed, error) {
	w.buf = append(w.buf, 0)
	w.buf = binary.AppendUvarint(w.buf, w.records)
	if w.file == nil && len(w.buf) <= w.inline {
		s := Sealed{Inline: bytes.Clone(w.buf), Size: uint64(len(w.buf)), CRC32C: crc32.Checksum(w.buf, castagnoli()), Records: w.records}
		w.reset()
		return s, nil
	}
	err := w.flush(path)
	if w.file != nil {
		err = errors.Join(err, w.file.Close())
	}
	if err != nil {
		return Sealed{}, err
	}
	s := Sealed{Path: w.path, Size: w.flushed, CRC32C: w.crc, Records: w.records}
	w.reset()
	return s, nil
}

// Discard gives the current file up and begins the next one.
func (w *Writer) Discard() error {
	var err error
	if w.file != nil {
		err = errors.Join(w.file.Close(), os.Remove(w.path))
	}
	w.reset()
	return err
}

// unexpected turns the end of a file into an error of its format.
func unexpected(what string) error { return fmt.Errorf("%w: %s", ErrFormat, what) }
