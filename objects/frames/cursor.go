package frames

import (
	"encoding/binary"
	"fmt"
)

// cursor reads a body from front to back. After the first failure all further reads return zero
// values.
type cursor struct {
	rest []byte
	err  error
}

// take returns the next n bytes, which are part of the body.
func (c *cursor) take(n int) []byte {
	if c.err != nil || uint(n) > uint(len(c.rest)) {
		c.tooShort(n)
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

// tooShort fails unless an earlier read has.
func (c *cursor) tooShort(n int) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: it ends %d bytes too early", ErrFrame, n-len(c.rest))
	}
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads the number of items that follow, each of at least size bytes: no more are
// allocated for than the body has room for.
func (c *cursor) count(size int) int {
	n := c.u32()
	if c.err == nil && uint64(n)*uint64(size) > uint64(len(c.rest)) {
		c.err = fmt.Errorf("%w: %d items of at least %d bytes in %d bytes", ErrFrame, n, size, len(c.rest))
	}
	if c.err != nil {
		return 0
	}
	return int(n)
}

// end fails if bytes are left.
func (c *cursor) end() error {
	if c.err == nil && len(c.rest) > 0 {
		c.err = fmt.Errorf("%w: %d bytes too many", ErrFrame, len(c.rest))
	}
	return c.err
}
