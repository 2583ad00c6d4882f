package boltcheck

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
)

// The layout of bbolt v1.5.0 (internal/common/{meta,page,inode,bucket}.go), in the
// byte order of the machine:
//
//	page:   id 8 | flags 2 | count 2 | overflow 4 | elements…, keys, values
//	meta:   page head | magic 4 | version 4 | page size 4 | flags 4 | root page 8 |
//	        sequence 8 | free list page 8 | pages 8 | transaction 8 | FNV-1a of these 8
//	branch: offset of key from here 4 | key length 4 | page 8
//	leaf:   flags 4 | offset of key from here 4 | key length 4 | value length 4
//	bucket: root page 8 | sequence 8 | if the root page is 0: a leaf page
const (
	pageHead    = 16
	elementSize = 16
	bucketHead  = 16

	branchPage   = 0x01
	leafPage     = 0x02
	metaPage     = 0x04
	freelistPage = 0x10
	bucketFlag   = 0x01

	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	metaBytes    = 64
	noFreelist   = ^uint64(0)
	smallestPage = 1 << 10
	largestPage  = 1 << 24
	// maxDepth bounds the levels of a tree and of buckets in buckets. A tree of 2^48
	// pages has fewer.
	maxDepth = 64
)

var order = binary.NativeEndian

// file is a mapped file with the meta page that counts.
type file struct {
	data     []byte
	meta     meta
	metaLost bool
	seen     []uint64 // a bit for each page that is in use
}

type meta struct{ pageSize, root, freelist, pages, tx uint64 }

// open reads the meta pages and checks the size of the file.
func open(data []byte) (*file, error) {
	f := &file{data: data}
	first, ok0 := readMeta(data, 0)
	second, ok1 := meta{}, false
	if ok0 {
		second, ok1 = readMeta(data, first.pageSize)
	} else {
		for size := uint64(smallestPage); size <= largestPage && !ok1; size *= 2 {
			second, ok1 = readMeta(data, size)
			ok1 = ok1 && second.pageSize == size
		}
	}
	switch {
	case !ok0 && !ok1:
		return nil, fmt.Errorf("%w: no valid meta page", ErrDamaged)
	case ok1 && (!ok0 || second.tx > first.tx):
		f.meta = second
	default:
		f.meta = first
	}
	f.metaLost = !ok0 || !ok1
	m := f.meta
	if m.pages > uint64(len(data))/m.pageSize {
		return nil, fmt.Errorf("%w: truncated after %d of %d pages", ErrDamaged, uint64(len(data))/m.pageSize, m.pages)
	}
	return f, nil
}

func readMeta(data []byte, at uint64) (meta, bool) {
	if at+pageHead+metaBytes > uint64(len(data)) {
		return meta{}, false
	}
	head, b := data[at:], data[at+pageHead:at+pageHead+metaBytes]
	sum := fnv.New64a()
	sum.Write(b[:metaBytes-8])
	m := meta{
		pageSize: uint64(order.Uint32(b[8:])), root: order.Uint64(b[16:]),
		freelist: order.Uint64(b[32:]), pages: order.Uint64(b[40:]), tx: order.Uint64(b[48:]),
	}
	ok := order.Uint32(b) == metaMagic && order.Uint32(b[4:]) == metaVersion && order.Uint64(b[56:]) == sum.Sum64() &&
		order.Uint16(head[8:]) == metaPage && m.pageSize >= smallestPage && m.pageSize <= largestPage && m.pageSize&(m.pageSize-1) == 0
	return m, ok
}

// tree checks every page in use and returns the names of the top-level buckets.
func (f *file) tree() (buckets []string, err error) {
	f.seen = make([]uint64, f.meta.pages/64+1)
	err = f.walk(f.meta.root, nil, nil, 0, func(name []byte) { buckets = append(buckets, string(name)) })
	if err == nil && f.meta.freelist != noFreelist {
		err = f.freelist()
	}
	return buckets, err
}

// page is one page with its overflow.
type page struct {
	id           uint64
	flags, count uint16
	body         []byte // from the head on
}

// load returns a page that nothing else refers to.
func (f *file) load(id uint64) (page, error) {
	if id < 2 || id >= f.meta.pages {
		return page{}, fmt.Errorf("%w: invalid page number %d in a file of %d pages", ErrDamaged, id, f.meta.pages)
	}
	head := f.data[id*f.meta.pageSize:]
	p := page{id: id, flags: order.Uint16(head[8:]), count: order.Uint16(head[10:])}
	overflow := uint64(order.Uint32(head[12:]))
	if own := order.Uint64(head); own != id {
		return page{}, fmt.Errorf("%w: the header of page %d has the page number %d", ErrDamaged, id, own)
	}
	if overflow >= f.meta.pages-id {
		return page{}, fmt.Errorf("%w: page %d has %d overflow pages in a file of %d pages", ErrDamaged, id, overflow, f.meta.pages)
	}
	for n := id; n <= id+overflow; n++ {
		if f.seen[n/64]&(1<<(n%64)) != 0 {
			return page{}, fmt.Errorf("%w: page %d is used twice", ErrDamaged, n)
		}
		f.seen[n/64] |= 1 << (n % 64)
	}
	p.body = head[:(overflow+1)*f.meta.pageSize]
	return p, nil
}

// walk checks a page and all below it. Its keys are at least low and less than high;
// nil is no bound. bucket gets the name of each bucket at the first level.
func (f *file) walk(id uint64, low, high []byte, depth int, bucket func([]byte)) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: more than %d levels at page %d", ErrDamaged, maxDepth, id)
	}
	p, err := f.load(id)
	if err != nil {
		return err
	}
	switch p.flags {
	case leafPage:
		return f.leaf(p, low, high, depth, bucket)
	case branchPage:
		return f.branch(p, low, high, depth, bucket)
	}
	return fmt.Errorf("%w: page %d has type %#x", ErrDamaged, id, p.flags)
}

func (f *file) branch(p page, low, high []byte, depth int, bucket func([]byte)) error {
	if p.count == 0 {
		return fmt.Errorf("%w: branch page %d is empty", ErrDamaged, p.id)
	}
	for i := range int(p.count) {
		at := uint64(pageHead + i*elementSize)
		key, err := p.branchKey(at)
		if err != nil {
			return err
		}
		if err := p.ordered(i, low, key, high); err != nil {
			return err
		}
		next := high
		if i+1 < int(p.count) {
			if next, err = p.branchKey(at + elementSize); err != nil {
				return err
			}
		}
		if err := f.walk(order.Uint64(p.body[at+8:]), key, next, depth+1, bucket); err != nil {
			return err
		}
		low = key
	}
	return nil
}

func (p page) branchKey(at uint64) ([]byte, error) {
	element, err := p.cut(at, elementSize)
	if err != nil {
		return nil, err
	}
	return p.cut(at+uint64(order.Uint32(element)), uint64(order.Uint32(element[4:])))
}

func (f *file) leaf(p page, low, high []byte, depth int, bucket func([]byte)) error {
	for i := range int(p.count) {
		at := uint64(pageHead + i*elementSize)
		element, err := p.cut(at, elementSize)
		if err != nil {
			return err
		}
		keyAt, keySize := at+uint64(order.Uint32(element[4:])), uint64(order.Uint32(element[8:]))
		key, err := p.cut(keyAt, keySize)
		if err != nil {
			return err
		}
		value, err := p.cut(keyAt+keySize, uint64(order.Uint32(element[12:])))
		if err != nil {
			return err
		}
		if err := p.ordered(i, low, key, high); err != nil {
			return err
		}
		low = key
		if order.Uint32(element)&bucketFlag == 0 {
			continue
		}
		if bucket != nil {
			bucket(key)
		}
		if err := f.bucket(p.id, value, depth); err != nil {
			return err
		}
	}
	return nil
}

// bucket checks the bucket whose root is in a value of a leaf page.
func (f *file) bucket(id uint64, value []byte, depth int) error {
	if len(value) < bucketHead {
		return fmt.Errorf("%w: page %d holds a bucket of %d bytes", ErrDamaged, id, len(value))
	}
	if root := order.Uint64(value); root != 0 {
		return f.walk(root, nil, nil, depth+1, nil)
	}
	inline := page{id: id, body: value[bucketHead:]}
	head, err := inline.cut(0, pageHead)
	if err != nil {
		return err
	}
	if flags := order.Uint16(head[8:]); flags != leafPage || depth >= maxDepth {
		return fmt.Errorf("%w: page %d holds a bucket of type %#x", ErrDamaged, id, flags)
	}
	inline.count = order.Uint16(head[10:])
	return f.leaf(inline, nil, nil, depth+1, nil)
}

// cut returns size bytes of a page.
func (p page) cut(at, size uint64) ([]byte, error) {
	if end := at + size; end > uint64(len(p.body)) {
		return nil, fmt.Errorf("%w: page %d refers to byte %d of %d", ErrDamaged, p.id, end, len(p.body))
	}
	return p.body[at : at+size], nil
}

// ordered checks the key of element i: keys rise, and stay within those of the branch.
func (p page) ordered(i int, low, key, high []byte) error {
	c := 1
	if low != nil {
		c = bytes.Compare(key, low)
	}
	if c < 0 || c == 0 && i > 0 || high != nil && bytes.Compare(key, high) >= 0 {
		return fmt.Errorf("%w: page %d: key %d is out of order", ErrDamaged, p.id, i)
	}
	return nil
}

// freelist checks the stored list of free pages: bbolt overwrites what it names.
func (f *file) freelist() error {
	p, err := f.load(f.meta.freelist)
	if err != nil {
		return err
	}
	if p.flags != freelistPage {
		return fmt.Errorf("%w: page %d has type %#x, want a free list", ErrDamaged, p.id, p.flags)
	}
	at, count := uint64(pageHead), uint64(p.count)
	if p.count == 0xFFFF { // too many for the head: the first number is their count
		b, err := p.cut(at, 8)
		if err != nil {
			return err
		}
		at, count = at+8, order.Uint64(b)
	}
	if count > f.meta.pages {
		return fmt.Errorf("%w: page %d lists %d free pages of %d", ErrDamaged, p.id, count, f.meta.pages)
	}
	list, err := p.cut(at, 8*count)
	if err != nil {
		return err
	}
	for ; len(list) > 0; list = list[8:] {
		id := order.Uint64(list)
		if id < 2 || id >= f.meta.pages {
			return fmt.Errorf("%w: invalid free page %d in a file of %d pages", ErrDamaged, id, f.meta.pages)
		}
		if f.seen[id/64]&(1<<(id%64)) != 0 {
			return fmt.Errorf("%w: page %d is free and in use", ErrDamaged, id)
		}
		f.seen[id/64] |= 1 << (id % 64)
	}
	return nil
}
