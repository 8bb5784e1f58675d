package arena

import (
	"math/bits"
	"os"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/memfd"
)

// wordsPerPage is the number of words of one page's label: the owner, and the place.
const wordsPerPage = 2

// labels say what the pages of a kept slab hold. They are in a file that outlives the process
// together with the memory: the slab's own, behind its memory, if that is a file of the host.
//
// The label of a page is two words. The first is its owner, 0 for a page that holds nothing:
// storing it is what gives the page to the owner or takes it away. The second is its place:
// the page's number in the owner's content, above how many of its first bytes are data: up
// to a page, which takes one bit more than an offset within it. It is stored first.
type labels struct {
	page devices.Size
	// mu is held for reading while words are used, and for writing while they are unmapped.
	mu sync.RWMutex
	// +checklocks:mu
	words memfd.Words
}

// labelBytes returns the length of the labels of a slab, in whole pages of the kernel.
func labelBytes(size, page devices.Size) devices.Size {
	return roundUp(size/page*wordsPerPage*8, devices.Size(os.Getpagesize()))
}

// mapLabels maps the labels of a slab, which begin at off.
func mapLabels(f *os.File, off, size, page devices.Size) (*labels, error) {
	words, err := memfd.MapWords(f, int64(off), int(size/page)*wordsPerPage)
	if err != nil {
		return nil, err
	}
	return &labels{page: page, words: words}, nil
}

// close unmaps the labels; later changes have no effect.
func (l *labels) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	words := l.words
	l.words = memfd.Words{}
	return words.Unmap()
}

// set gives n pages to an owner. off and written are those of Label.
func (l *labels) set(page, n uint32, of Label) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.words.Len() == 0 {
		return
	}
	words := l.words.Plain()[page*wordsPerPage:]
	shift := bits.TrailingZeros64(uint64(l.page))
	place, left := of.Off>>shift, of.Written
	for i := range uint64(n) {
		data := min(left, uint64(l.page))
		left -= data
		words[i*wordsPerPage+1] = (place+i)<<(shift+1) | data
		words[i*wordsPerPage] = of.Owner
	}
}

// clear takes n pages from their owners.
func (l *labels) clear(page, n uint32) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.words.Len() == 0 {
		return
	}
	words := l.words.Plain()[page*wordsPerPage:]
	for i := range uint64(n) {
		words[i*wordsPerPage] = 0
	}
}

// run returns the label of the longest range of pages that begins at page, ends before end,
// and is one range of one owner's content with its data in front; n is its length.
func (l *labels) run(page, end uint32) (of Label, n uint32) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.words.Len() == 0 {
		return Label{}, end - page
	}
	of = l.get(page)
	for n = 1; page+n < end; n++ {
		next := l.get(page + n)
		size := uint64(n) * uint64(l.page)
		switch {
		case next.Owner != of.Owner:
			return of, n
		case of.Owner == 0:
			continue
		case next.Off != of.Off+size || next.Written > 0 && of.Written < size:
			return of, n
		}
		of.Written += next.Written
	}
	return of, n
}

// +checklocksread:l.mu
func (l *labels) get(page uint32) Label {
	words := l.words.Plain()[page*wordsPerPage:]
	of := Label{Owner: words[0]}
	if of.Owner != 0 {
		shift := bits.TrailingZeros64(uint64(l.page))
		of.Off = words[1] >> (shift + 1) << shift
		of.Written = min(words[1]&(1<<(shift+1)-1), uint64(l.page))
	}
	return of
}
