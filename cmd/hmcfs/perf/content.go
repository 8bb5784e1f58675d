package perf

import (
	"context"
	"encoding/binary"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/region"
)

// wordAt returns the word of the content at an index: a mix of seed and index, so that a
// word at a wrong place, or of another seed, is detected.
func wordAt(seed, index uint64) uint64 {
	z := (seed+1)*0x9e3779b97f4a7c15 ^ index*0xd1342543de82ef95
	z = (z ^ z>>32) * 0xdaba0b6eb09322e3
	return z ^ z>>29
}

// piece is the size, in bytes, of the content generated or verified in one step, a multiple
// of a word.
const piece = 1 << 20

// byteAt returns one byte of the content.
func byteAt(seed, at uint64) byte { return byte(wordAt(seed, at/8) >> (8 * (at % 8))) }

// write fills the first n bytes of a buffer with the content of a seed.
func write(ctx context.Context, b *region.Buffer, seed uint64, n devices.Size) error {
	return inPieces(n, func(p []byte, off devices.Offset) error {
		for i := 0; i+8 <= len(p); i += 8 {
			binary.LittleEndian.PutUint64(p[i:], wordAt(seed, (uint64(off)+uint64(i))/8))
		}
		for i := len(p) &^ 7; i < len(p); i++ {
			p[i] = byteAt(seed, uint64(off)+uint64(i))
		}
		return b.Store(ctx, off, transport.HostSpan(p))
	})
}

// verify returns the offset of the first of n bytes that differs from the content, or -1.
func verify(ctx context.Context, b *region.Buffer, seed uint64, n devices.Size) (int64, error) {
	first := int64(-1)
	err := inPieces(n, func(p []byte, off devices.Offset) error {
		if err := b.Load(ctx, transport.HostSpan(p), off); err != nil || first >= 0 {
			return err
		}
		for i := range p {
			if i%8 == 0 && i+8 <= len(p) && binary.LittleEndian.Uint64(p[i:]) == wordAt(seed, (uint64(off)+uint64(i))/8) {
				continue
			}
			if at := uint64(off) + uint64(i); p[i] != byteAt(seed, at) {
				first = int64(at)
				return nil
			}
		}
		return nil
	})
	return first, err
}

// inPieces calls fn for each piece in order, with a buffer for its bytes.
func inPieces(n devices.Size, fn func(p []byte, off devices.Offset) error) error {
	buf := make([]byte, min(n, piece))
	for off := devices.Size(0); off < n; off += piece {
		if err := fn(buf[:min(n-off, piece)], devices.Offset(off)); err != nil {
			return err
		}
	}
	return nil
}
