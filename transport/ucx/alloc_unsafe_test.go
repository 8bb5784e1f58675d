package ucx

import (
	"unsafe"

	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The constants of ucp.h for memory that the library allocates.
const (
	memMapFlags     = 1 << 2
	memMapAllocate  = 1 << 1
	memQueryAddress = 1 << 0
	memQueryLength  = 1 << 1
)

type memAttr struct {
	fieldMask  uint64
	address    uintptr
	length     uint64
	memoryType int32
	_          int32
}

// alloc allocates n bytes of the memory that the library's transports can access
// best: with shared memory a peer on this host accesses it by one memcpy. Exports of
// it must grant all rights.
func (c *Context) alloc(n int) (p []byte, free func() error, err error) {
	var query struct {
		Mem dl.Func `dl:"ucp_mem_query"`
	}
	lib, err := dl.Open(systemLibrary())
	if err == nil {
		err = lib.Resolve(&query)
	}
	if err != nil {
		return nil, nil, err
	}
	params := memMapParams{
		fieldMask: memMapLength | memMapFlags | memMapMemoryType,
		length:    uint64(n), flags: memMapAllocate, memoryType: memoryHost,
	}
	var h memoryHandle
	status := statusOf(c.api.MemMap.Call(uintptr(c.handle), uintptr(unsafe.Pointer(&params)), uintptr(unsafe.Pointer(&h))))
	if err = c.api.check("ucp_mem_map", status); err != nil {
		return nil, nil, err
	}
	attr := memAttr{fieldMask: memQueryAddress | memQueryLength}
	status = statusOf(query.Mem.Call(uintptr(h), uintptr(unsafe.Pointer(&attr))))
	if err = c.api.check("ucp_mem_query", status); err != nil {
		c.api.MemUnmap.Call(uintptr(c.handle), uintptr(h))
		return nil, nil, err
	}
	p = dl.Bytes(attr.address, n)
	clear(p)
	start := region.Address(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.addLocked(&mapping{start: start, end: start + uint64(n), rights: wire.Readable | wire.Writable, handle: h, refs: 1})
	if err != nil {
		return nil, nil, err
	}
	return p, func() error { return c.release(m) }, nil
}
