package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"hash/fnv"
	"io"
	"os"
)

// Bounds of files that are written.
const (
	boltPage = 4 << 10
	// writeBytes is how much is written at once.
	writeBytes = 256 << 10
	metaFlag   = 4
	metaPages  = 2
	// noFreelist tells bbolt that the file does not list its free pages; there are none.
	noFreelist = ^uint64(0)
)

// boltFile writes a file of bbolt's format from pairs in ascending order: leaves one behind the other, the branches above them, then the
// rest. bbolt, which takes pairs in any order, needs several times as long and leaves pages behind that nothing refers to.
type boltFile struct {
	file   *os.File
	buf    []byte // pages still to be written
	pages  uint64 // written and in buf
	blocks boltPageBuilder
	leaves []child
}

// child is a page with the first key in it.
type child struct {
	key  []byte
	page uint64
}

func createBoltFile(path string) (*boltFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	// What the pages before tell is known at the end.
	return &boltFile{file: f, buf: make([]byte, metaPages*boltPage, writeBytes+boltPage), pages: metaPages}, nil
}

// put adds a pair to the blocks.
func (b *boltFile) put(key, value []byte) error {
	if !b.blocks.fits(len(key) + len(value)) {
		if err := b.endLeaf(); err != nil {
			return err
		}
	}
	b.blocks.add(0, key, value)
	return nil
}

func (b *boltFile) endLeaf() (err error) {
	b.leaves, err = b.end(b.leaves, &b.blocks, leafFlag)
	return err
}

// end writes a page, empties its builder, and appends the page to a list.
func (b *boltFile) end(list []child, p *boltPageBuilder, flag uint16) ([]child, error) {
	list = append(list, child{bytes.Clone(p.first), b.pages})
	start := len(b.buf)
	b.buf = p.append(b.buf, b.pages, flag)
	b.pages += uint64(len(b.buf)-start) / boltPage
	if len(b.buf) < writeBytes {
		return list, nil
	}
	return list, b.flush()
}

func (b *boltFile) flush() error {
	_, err := b.file.Write(b.buf)
	b.buf = b.buf[:0]
	return err
}

// finish writes all that is left and closes the file.
func (b *boltFile) finish(header, filter []byte) (size uint64, sum uint32, digest []byte, err error) {
	err = b.finishPages(header, filter)
	if err == nil {
		size, sum, digest, err = checksumFile(b.file)
	}
	return size, sum, digest, errors.Join(err, b.file.Close())
}

func (b *boltFile) finishPages(header, filter []byte) error {
	if b.blocks.count > 0 || len(b.leaves) == 0 {
		if err := b.endLeaf(); err != nil {
			return err
		}
	}
	level := b.leaves
	for len(level) > 1 {
		var above []child
		var p boltPageBuilder
		var err error
		for _, c := range level {
			if !p.fits(len(c.key)) {
				if above, err = b.end(above, &p, branchFlag); err != nil {
					return err
				}
			}
			p.addChild(c)
		}
		if level, err = b.end(above, &p, branchFlag); err != nil {
			return err
		}
	}
	var p boltPageBuilder
	p.add(0, bloomKey, filter)
	p.add(0, headerKey, header)
	meta, err := b.end(nil, &p, leafFlag)
	if err != nil {
		return err
	}
	p.add(bucketFlag, blocksBucket, bucketAt(level[0].page))
	p.add(bucketFlag, metaBucket, bucketAt(meta[0].page))
	root, err := b.end(nil, &p, leafFlag)
	if err != nil {
		return err
	}
	if err := b.flush(); err != nil {
		return err
	}
	_, err = b.file.WriteAt(metaPagesOf(root[0].page, b.pages), 0)
	return err
}

func (b *boltFile) close() error { return b.file.Close() }

// bucketAt is the value of a bucket whose root is a page.
func bucketAt(page uint64) []byte {
	return binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, page), 0)
}

// metaPagesOf returns the two pages at the start of a file with a root and a number of pages.
func metaPagesOf(root, pages uint64) []byte {
	both := make([]byte, metaPages*boltPage)
	for i := range uint64(metaPages) {
		p := both[i*boltPage:]
		binary.NativeEndian.PutUint64(p, i)
		binary.NativeEndian.PutUint16(p[8:], metaFlag)
		m := p[pageHeader:]
		binary.NativeEndian.PutUint32(m, boltMagic)
		binary.NativeEndian.PutUint32(m[4:], boltVersion)
		binary.NativeEndian.PutUint32(m[8:], boltPage)
		binary.NativeEndian.PutUint64(m[16:], root)
		binary.NativeEndian.PutUint64(m[32:], noFreelist)
		binary.NativeEndian.PutUint64(m[40:], pages)
		binary.NativeEndian.PutUint64(m[48:], i) // number of the transaction
		sum := fnv.New64a()
		_, _ = sum.Write(m[:56])
		binary.NativeEndian.PutUint64(m[56:], sum.Sum64())
	}
	return both
}

// boltPageBuilder collects the elements of a page.
type boltPageBuilder struct {
	count    int
	elements []byte
	data     []byte // keys and values
	first    []byte
}

// fits reports whether an element with so many bytes can be added without exceeding a page. As in bbolt, a page has two at least, and
// goes on in the next ones if it has to.
func (p *boltPageBuilder) fits(size int) bool {
	return p.count < 2 || pageHeader+len(p.elements)+elementSize+len(p.data)+size <= boltPage
}

// add adds an element of a leaf. Where it begins is told from the start of data on, until the number of elements is known.
func (p *boltPageBuilder) add(flags uint32, key, value []byte) {
	p.elements = binary.NativeEndian.AppendUint32(p.elements, flags)
	p.elements = binary.NativeEndian.AppendUint32(p.elements, uint32(len(p.data)))
	p.elements = binary.NativeEndian.AppendUint32(p.elements, uint32(len(key)))
	p.elements = binary.NativeEndian.AppendUint32(p.elements, uint32(len(value)))
	p.addData(key)
	p.data = append(p.data, value...)
}

// addChild adds an element of a branch.
func (p *boltPageBuilder) addChild(c child) {
	p.elements = binary.NativeEndian.AppendUint32(p.elements, uint32(len(p.data)))
	p.elements = binary.NativeEndian.AppendUint32(p.elements, uint32(len(c.key)))
	p.elements = binary.NativeEndian.AppendUint64(p.elements, c.page)
	p.addData(c.key)
}

func (p *boltPageBuilder) addData(key []byte) {
	if p.count == 0 {
		p.first = append(p.first[:0], key...)
	}
	p.count++
	p.data = append(p.data, key...)
}

// append appends the page with a number, and empties the builder.
func (p *boltPageBuilder) append(dst []byte, number uint64, flag uint16) []byte {
	size := pageHeader + len(p.elements) + len(p.data)
	more := (size - 1) / boltPage
	dst = binary.NativeEndian.AppendUint64(dst, number)
	dst = binary.NativeEndian.AppendUint16(dst, flag)
	dst = binary.NativeEndian.AppendUint16(dst, uint16(p.count))
	dst = binary.NativeEndian.AppendUint32(dst, uint32(more))
	at := 0 // of the place within an element of a branch
	if flag == leafFlag {
		at = 4
	}
	for i := range p.count {
		e := p.elements[i*elementSize+at:]
		binary.NativeEndian.PutUint32(e, binary.NativeEndian.Uint32(e)+uint32((p.count-i)*elementSize))
	}
	dst = append(dst, p.elements...)
	dst = append(dst, p.data...)
	dst = append(dst, make([]byte, (more+1)*boltPage-size)...)
	p.count, p.elements, p.data, p.first = 0, p.elements[:0], p.data[:0], p.first[:0]
	return dst
}

func checksumFile(f *os.File) (size uint64, sum uint32, digest []byte, err error) {
	crc, sha := crc32.New(castagnoli), sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(crc, sha), io.NewSectionReader(f, 0, 1<<62), make([]byte, 128<<10))
	return uint64(n), crc.Sum32(), sha.Sum(nil), err
}
