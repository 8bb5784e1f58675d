package content

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// CopyTo copies n bytes at off to offset at of other content, if both are in mapped memory in one piece
// that can be used: most reads of keys are, and they are small, so that what Find and Write do for
// others costs more than the copy. burst makes the copy with others; nil if it is made for itself. If done is false it has done nothing.
func (b *Bound) CopyTo(off, n uint64, dst *Bound, at uint64, burst *transport.Burst) (done bool, err error) {
	if n > MaxPiece || off > b.size || n > b.size-off || at > dst.size || n > dst.size-at {
		return false, nil
	}
	var in stay
	defer in.leave()
	from, found := b.mappedPiece(&in, off, n)
	if !found {
		return false, nil
	}
	to, found := dst.mappedPiece(&in, at, n)
	if !found {
		return false, nil
	}
	dst.DropReplicas(nil) // they are none of what is here from now on
	// A piece that has begun is finished, see changePiece.
	if burst != nil && from.device == to.device {
		return true, burst.Copy(to.device, to.in, to.off, from.in, from.off, n)
	}
	_, err = b.engine.Copy(context.Background(), to.span(n), from.span(n))
	return true, err
}

// mapped is a place in a mapped file of a device.
type mapped struct {
	device devices.Name
	in     *transport.Mapping
	off    uint64
}

func (m mapped) span(n uint64) transport.Span {
	return transport.MappedSpan(m.device, m.in, int64(m.off), devices.Size(n))
}

// mappedPiece returns the place of a range that is not empty in mapped memory, and enters its gates.
func (b *Bound) mappedPiece(in *stay, off, n uint64) (at mapped, found bool) {
	for {
		if !b.isThere() || b.enter(in) != nil {
			return mapped{}, false
		}
		p := &b.parts[b.first(off)]
		switch inside := off - p.off; {
		case inside+n > p.n:
			return mapped{}, false
		case p.of != nil:
			b, off = p.of, p.at+inside
		case p.mapped != nil:
			return mapped{b.name, p.mapped, p.at + inside}, true
		default:
			return mapped{}, false
		}
	}
}
