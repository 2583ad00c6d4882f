package codec

import "encoding/binary"

// Record codes a value whose fields are coded by fields. O(size).
func Record[T any](c *Coder, v *T, fields func(*Coder, *T)) {
	if c.reading {
		n := c.length(0)
		outer := c.end
		c.end = c.pos + n
		start := c.end
		fields(c, v)
		if c.err == nil {
			c.pos = start // skips fields that a newer version appended
		} else {
			c.pos = outer
		}
		c.end = outer
		return
	}
	at := len(c.buf)
	c.buf = append(c.buf, 0)
	fields(c, v)
	size := len(c.buf) - at - 1
	if size < 0x80 {
		c.buf[at] = byte(size)
		return
	}
	var head [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(head[:], uint64(size))
	c.buf = append(c.buf, head[:n-1]...)
	copy(c.buf[at+n:], c.buf[at+1:at+1+size])
	copy(c.buf[at:], head[:n])
}

// List codes a list of elements of at least one byte each. Nil and empty are equal and read as nil.
// A reader grows the list with the input, so a false count costs no memory.
func List[T any](c *Coder, v *[]T, element func(*Coder, *T)) {
	n := c.length(len(*v))
	if !c.reading {
		for i := range *v {
			element(c, &(*v)[i])
		}
		return
	}
	*v = nil
	var list []T
	if n > 0 {
		list = make([]T, 0, min(n, firstElements))
	}
	for range n {
		var zero T
		list = append(list, zero)
		if element(c, &list[len(list)-1]); c.err != nil {
			return
		}
	}
	*v = list
}

// firstElements is the initial capacity of a list that is read.
const firstElements = 8

// Optional codes a value that may be absent.
func Optional[T any](c *Coder, v **T, value func(*Coder, *T)) {
	there := *v != nil
	Bool(c, &there)
	if c.reading {
		*v = nil
		if !there || c.err != nil {
			return
		}
		*v = new(T)
	}
	if there {
		value(c, *v)
	}
}
