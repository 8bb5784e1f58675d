package memfd

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Words are 64-bit words of a file, mapped into memory. A store is in the file as soon as it
// is executed. The zero value has no words.
type Words struct {
	mapping []byte
	words   []atomic.Uint64
}

// MapWords maps n words of f at off, a page boundary.
func MapWords(f *os.File, off int64, n int) (Words, error) {
	p, err := Map(f, off, 8*n)
	if err != nil {
		return Words{}, err
	}
	return Words{mapping: p, words: unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(p))), n)}, nil
}

// Len returns the number of words.
func (w Words) Len() int { return len(w.words) }

// At returns a word.
func (w Words) At(i int) *atomic.Uint64 { return &w.words[i] }

// Plain returns the words for accesses that are not atomic: by one goroutine at a time. They
// too are in the file once they are executed, each as a whole and in order, but cost a
// tenth.
func (w Words) Plain() []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(w.mapping))), len(w.words))
}

// Unmap ends the use of the words.
func (w Words) Unmap() error {
	if w.mapping == nil {
		return nil
	}
	return unix.Munmap(w.mapping)
}
