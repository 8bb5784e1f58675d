package nowait

import "golang.org/x/sys/unix"

// vector holds the parts of a write in the kernel's format. It keeps its memory,
// so that a write allocates nothing.
type vector struct {
	pieces []unix.Iovec
	head   unix.Msghdr
}

// send writes as much of some parts as fits without waiting.
func (v *vector) send(fd uintptr, parts [][]byte) (int, error) {
	v.pieces = v.pieces[:0]
	for _, p := range parts {
		if len(p) == 0 {
			continue
		}
		piece := unix.Iovec{Base: &p[0]}
		piece.SetLen(len(p))
		v.pieces = append(v.pieces, piece)
	}
	if len(v.pieces) == 0 {
		return 0, nil
	}
	v.head = unix.Msghdr{Iov: &v.pieces[0]}
	v.head.SetIovlen(len(v.pieces))
	n, err := sendMessage(fd, &v.head)
	// The kernel has copied what it accepted; no reference is kept.
	clear(v.pieces)
	v.head = unix.Msghdr{}
	return n, err
}
