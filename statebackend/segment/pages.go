package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"
)

// What of bbolt's format is read here. bbolt itself trusts each page of a file: a damaged one may lead it out of the mapping, round in
// circles, or past rows. What follows trusts none.
const (
	pageHeader  = 16
	elementSize = 16
	branchFlag  = 1
	leafFlag    = 2
	bucketFlag  = 1 // of an element of a leaf
	boltMagic   = 0xED0CDAED
	boltVersion = 2
	boltMeta    = 64 // bytes, the last 8 of which are a checksum
	bucketSize  = 16 // of what the value of a bucket begins with: number of the root page, and a sequence
	minPage     = 1 << 10
	maxPage     = 1 << 16
	// maxDepth of a tree is never met by one whose pages have two children or more.
	maxDepth = 32
)

// pages is a mapped file.
type pages struct {
	data []byte
	size uint64 // of a page
	root uint64 // number of the page with the names of buckets
}

// mapPages maps a file whose size must be as given, and reads nothing of it.
func mapPages(path string, size uint64) (*pages, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if uint64(info.Size()) != size {
		return nil, fmt.Errorf("%w: the file has %d bytes, not %d", ErrCorrupt, info.Size(), size)
	}
	if size < 2*minPage {
		return nil, fmt.Errorf("%w: a file of %d bytes", ErrCorrupt, size)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the file: %w", err)
	}
	_ = unix.Madvise(data, unix.MADV_RANDOM) // a hint
	return &pages{data: data}, nil
}

func (p *pages) close() error { return unix.Munmap(p.data) }

// findRoot reads the two meta pages, of which the newer sound one counts.
func (p *pages) findRoot() error {
	newest, found := uint64(0), false
	look := func(at uint64) {
		if at+pageHeader+boltMeta > uint64(len(p.data)) {
			return
		}
		m := p.data[at+pageHeader:][:boltMeta]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:56])
		size := binary.NativeEndian.Uint32(m[8:])
		if binary.NativeEndian.Uint32(m) != boltMagic || binary.NativeEndian.Uint32(m[4:]) != boltVersion ||
			binary.NativeEndian.Uint64(m[56:]) != sum.Sum64() || size < minPage || size > maxPage || bits.OnesCount32(size) != 1 {
			return
		}
		if tx := binary.NativeEndian.Uint64(m[48:]); !found || tx > newest {
			p.size, p.root, newest, found = uint64(size), binary.NativeEndian.Uint64(m[16:]), tx, true
		}
	}
	look(0)
	for size := uint64(minPage); size <= maxPage; size *= 2 {
		if p.size == 0 || p.size == size {
			look(size)
		}
	}
	if !found {
		return fmt.Errorf("%w: no meta page", ErrCorrupt)
	}
	return nil
}

// node is a page of a tree, or what stands for one within a bucket's value.
type node struct {
	data  []byte // with the header
	leaf  bool
	count int
}

func (p *pages) node(number uint64) (node, error) {
	if number >= uint64(len(p.data))/p.size {
		return node{}, fmt.Errorf("%w: page %d is beyond the end", ErrCorrupt, number)
	}
	data := p.data[number*p.size:]
	pagesOf := uint64(binary.NativeEndian.Uint32(data[12:])) + 1
	if id := binary.NativeEndian.Uint64(data); id != number || pagesOf > uint64(len(data))/p.size {
		return node{}, fmt.Errorf("%w: page %d calls itself %d and has %d pages", ErrCorrupt, number, id, pagesOf)
	}
	return newNode(data[:pagesOf*p.size])
}

func newNode(data []byte) (node, error) {
	if len(data) < pageHeader {
		return node{}, fmt.Errorf("%w: page of %d bytes", ErrCorrupt, len(data))
	}
	n := node{data: data, count: int(binary.NativeEndian.Uint16(data[10:]))}
	switch flags := binary.NativeEndian.Uint16(data[8:]); flags {
	case branchFlag:
	case leafFlag:
		n.leaf = true
	default:
		return node{}, fmt.Errorf("%w: page of kind %d", ErrCorrupt, flags)
	}
	if pageHeader+n.count*elementSize > len(data) {
		return node{}, fmt.Errorf("%w: page with %d elements", ErrCorrupt, n.count)
	}
	return n, nil
}

// cut returns part of the page, counted from an element on.
func (n node) cut(element int, from, size uint32) ([]byte, error) {
	start := uint64(pageHeader+element*elementSize) + uint64(from)
	end := start + uint64(size)
	if end > uint64(len(n.data)) {
		return nil, fmt.Errorf("%w: element beyond its page", ErrCorrupt)
	}
	return n.data[start:end:end], nil
}

func (n node) key(i int) ([]byte, error) {
	e := n.data[pageHeader+i*elementSize:]
	if n.leaf {
		e = e[4:]
	}
	return n.cut(i, binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:]))
}

// value returns the value of an element of a leaf, and whether it is a bucket.
func (n node) value(i int) (value []byte, bucket bool, err error) {
	e := n.data[pageHeader+i*elementSize:]
	from, keySize := binary.NativeEndian.Uint32(e[4:]), binary.NativeEndian.Uint32(e[8:])
	if from+keySize < from {
		return nil, false, fmt.Errorf("%w: element beyond its page", ErrCorrupt)
	}
	value, err = n.cut(i, from+keySize, binary.NativeEndian.Uint32(e[12:]))
	return value, binary.NativeEndian.Uint32(e)&bucketFlag != 0, err
}

func (n node) child(i int) uint64 {
	return binary.NativeEndian.Uint64(n.data[pageHeader+i*elementSize+8:])
}

// find returns the last element whose key is not greater than key, or else the first.
func (n node) find(key []byte) (int, error) {
	low, high := 0, n.count // elements before low are not greater, from high on they are
	for low < high {
		middle := int(uint(low+high) / 2)
		k, err := n.key(middle)
		if err != nil {
			return 0, err
		}
		if bytes.Compare(k, key) <= 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return max(0, low-1), nil
}

// findFrom is find that begins to look at an element, which had better be near.
func (n node) findFrom(at int, key []byte) (int, error) {
	greater := func(i int) (bool, error) {
		k, err := n.key(i)
		return bytes.Compare(k, key) > 0, err
	}
	low, high := 0, n.count // elements before low are not greater, from high on they are
	for step := 1; low < high; step *= 2 {
		is, err := greater(at)
		if err != nil {
			return 0, err
		}
		if is {
			high = at
			at -= step
		} else {
			low = at + 1
			at += step
		}
		if at < low || at >= high {
			break
		}
	}
	for low < high {
		middle := int(uint(low+high) / 2)
		is, err := greater(middle)
		if err != nil {
			return 0, err
		}
		if is {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return max(0, low-1), nil
}

// tree is a bucket, and a place in it.
type tree struct {
	pages  *pages
	leaves *leaves // nil when there are none to search in
	root   node
	depth  int
	stack  [maxDepth]place
	short  bool // the stack is of the leaf alone
}

type place struct {
	node  node
	index int
}

// bucket returns a bucket of the file by its name.
func (p *pages) bucket(name []byte) (*tree, error) {
	root, err := p.node(p.root)
	if err != nil {
		return nil, err
	}
	t := &tree{pages: p, root: root}
	k, v, bucket, err := t.seek(name)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(k, name) || !bucket || len(v) < bucketSize {
		return nil, fmt.Errorf("%w: no segment in the file", ErrCorrupt)
	}
	if number := binary.NativeEndian.Uint64(v); number != 0 {
		root, err = p.node(number)
	} else {
		root, err = newNode(v[bucketSize:])
	}
	return &tree{pages: p, root: root}, err
}

// get returns the value of a key; nil when there is none.
func (t *tree) get(key []byte) ([]byte, error) {
	k, v, bucket, err := t.seek(key)
	if err != nil || bucket || !bytes.Equal(k, key) {
		return nil, err
	}
	return v, nil
}

// seek moves to the last element whose key is not greater than key, or else to the first. Its key is nil when the tree has none.
func (t *tree) seek(key []byte) (k, v []byte, bucket bool, err error) {
	if t.leaves != nil {
		if number, ok := t.leaves.find(key); ok {
			return t.seekLeaf(number, key)
		}
	}
	return t.seekRoot(key)
}

// seekLeaf is seek in one leaf.
func (t *tree) seekLeaf(number uint64, key []byte) (k, v []byte, bucket bool, err error) {
	n, err := t.pages.node(number)
	if err == nil && (!n.leaf || n.count == 0) {
		err = fmt.Errorf("%w: no leaf", ErrCorrupt)
	}
	if err != nil {
		return nil, nil, false, err
	}
	i, err := n.find(key)
	if err != nil {
		return nil, nil, false, err
	}
	t.stack[0], t.depth, t.short = place{n, i}, 1, true
	return t.element()
}

// seekRoot is seek by way of the branches.
func (t *tree) seekRoot(key []byte) (k, v []byte, bucket bool, err error) {
	t.depth, t.short = 0, false
	for n := t.root; ; {
		i, err := n.find(key)
		if err != nil {
			return nil, nil, false, err
		}
		if t.depth == maxDepth {
			return nil, nil, false, fmt.Errorf("%w: pages lead nowhere", ErrCorrupt)
		}
		t.stack[t.depth] = place{n, i}
		t.depth++
		if n.leaf {
			return t.element()
		}
		if n, err = t.childOf(n, i); err != nil {
			return nil, nil, false, err
		}
	}
}

func (t *tree) childOf(n node, i int) (node, error) {
	if n.count == 0 {
		return node{}, fmt.Errorf("%w: empty page", ErrCorrupt)
	}
	return t.pages.node(n.child(i))
}

// element returns what the tree stands at. An empty leaf is that of an empty tree.
func (t *tree) element() (k, v []byte, bucket bool, err error) {
	at := t.stack[t.depth-1]
	if at.node.count == 0 {
		if t.depth > 1 {
			return nil, nil, false, fmt.Errorf("%w: empty page", ErrCorrupt)
		}
		return nil, nil, false, nil
	}
	if k, err = at.node.key(at.index); err != nil {
		return nil, nil, false, err
	}
	if len(k) == 0 {
		return nil, nil, false, fmt.Errorf("%w: empty key", ErrCorrupt)
	}
	v, bucket, err = at.node.value(at.index)
	return k, v, bucket, err
}

// move moves by one element, 1 or -1. k is nil when there is none; the tree then stands where it stood.
func (t *tree) move(by int) (k, v []byte, err error) {
	depth := t.depth
	for depth > 0 {
		if at := &t.stack[depth-1]; at.index+by >= 0 && at.index+by < at.node.count {
			break
		}
		depth--
	}
	if depth == 0 && t.short {
		if k, _, _, err = t.element(); err == nil {
			_, _, _, err = t.seekRoot(k)
		}
		if err != nil {
			return nil, nil, err
		}
		return t.move(by)
	}
	if depth == 0 {
		return nil, nil, nil
	}
	t.depth = depth
	at := &t.stack[depth-1]
	at.index += by
	for n, i := at.node, at.index; !n.leaf; {
		if n, err = t.childOf(n, i); err != nil {
			return nil, nil, err
		}
		if i = 0; by < 0 {
			i = max(0, n.count-1)
		}
		if t.depth == maxDepth {
			return nil, nil, fmt.Errorf("%w: pages lead nowhere", ErrCorrupt)
		}
		t.stack[t.depth] = place{n, i}
		t.depth++
	}
	k, v, _, err = t.element()
	return k, v, err
}
