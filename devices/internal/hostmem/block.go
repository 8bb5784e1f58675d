package hostmem

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Block is mapped host memory that is unmapped once, after it was ended and its last user
// has left. It is safe for concurrent use.
type Block struct {
	mu sync.Mutex
	// +checklocks:mu
	bytes []byte
	// +checklocks:mu
	users int
	// +checklocks:mu
	gone error
}

// NewBlock takes ownership of a mapping made by unix.Mmap.
func NewBlock(mapping []byte) *Block { return &Block{bytes: mapping} }

// Enter returns the bytes, which stay mapped until Leave, or the reason why the block was
// ended.
func (b *Block) Enter() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone != nil {
		return nil, b.gone
	}
	b.users++
	return b.bytes, nil
}

// Leave must follow every successful Enter, once.
func (b *Block) Leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users--
	// If unmapping fails the mapping remains: there is no caller to report to, and munmap
	// of a whole mapping fails only for lack of kernel memory.
	_ = b.unmapIfUnused()
}

// End makes every later Enter fail with why. Ending a block again has no effect.
func (b *Block) End(why error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone != nil {
		return nil
	}
	b.gone = why
	return b.unmapIfUnused()
}

// +checklocks:b.mu
func (b *Block) unmapIfUnused() error {
	if b.gone == nil || b.users > 0 || b.bytes == nil {
		return nil
	}
	mapping := b.bytes
	b.bytes = nil
	if err := unix.Munmap(mapping); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(mapping), err)
	}
	return nil
}
