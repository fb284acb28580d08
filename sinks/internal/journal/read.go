package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// Read calls do for each record of a file, in order; do may keep it. Every error of the format or the checksum is found before Read
// returns nil, but perhaps only after some records.
func Read(s Sealed, do func(record []byte) error) error {
	if s.Path == "" {
		return read(bytes.NewReader(s.Inline), s, do)
	}
	f, err := os.Open(s.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	return read(f, s, do)
}

// counted follows what was read of a file.
type counted struct {
	r    io.Reader
	left uint64
	crc  uint32
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if uint64(n) > c.left {
		return 0, fmt.Errorf("%w: it is longer", ErrChecksum)
	}
	c.left -= uint64(n)
	c.crc = crc32.Update(c.crc, castagnoli(), p[:n])
	return n, err
}

func read(r io.Reader, s Sealed, do func(record []byte) error) error {
	c := &counted{r: r, left: s.Size}
	b := bufio.NewReaderSize(c, bufferBytes)
	if err := decode(b, s.Size, do); err != nil {
		return err
	}
	switch {
	case c.left > 0:
		return fmt.Errorf("%w: it is shorter", ErrChecksum)
	case c.crc != s.CRC32C:
		return ErrChecksum
	}
	return nil
}

// decode reads a whole file of at most size bytes.
func decode(b *bufio.Reader, size uint64, do func(record []byte) error) error {
	head := make([]byte, len(header))
	if _, err := io.ReadFull(b, head); err != nil {
		return cut(err)
	}
	switch {
	case !bytes.Equal(head[:len(magic)], header[:len(magic)]):
		return unexpected("it does not begin as one")
	case head[len(magic)] != Version:
		return unexpected(fmt.Sprintf("version %d, this program reads version %d; use the version of Weir that wrote it", head[len(magic)], Version))
	}
	for records := uint64(0); ; records++ {
		n, err := binary.ReadUvarint(b)
		switch {
		case err != nil:
			return cut(err)
		case n == 0:
			return end(b, records)
		case n-1 > size:
			return unexpected("a record is longer than the file")
		}
		record := make([]byte, n-1)
		if _, err := io.ReadFull(b, record); err != nil {
			return cut(err)
		}
		if err := do(record); err != nil {
			return err
		}
	}
}

// end reads what follows the last record.
func end(b *bufio.Reader, records uint64) error {
	n, err := binary.ReadUvarint(b)
	if err != nil {
		return cut(err)
	}
	if n != records {
		return unexpected(fmt.Sprintf("it has %d records and says that it has %d", records, n))
	}
	switch _, err := b.ReadByte(); {
	case err == nil:
		return unexpected("something follows its end")
	case !errors.Is(err, io.EOF):
		return cut(err)
	}
	return nil
}

// cut gives an error of the reader its meaning: of what ends too early, or of what is no number, the format is wrong.
func cut(err error) error {
	var broken *os.PathError
	if errors.As(err, &broken) || errors.Is(err, ErrChecksum) {
		return err
	}
	return unexpected("it is cut off: " + err.Error())
}
