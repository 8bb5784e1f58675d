package content

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// CopyTo copies n bytes at off to offset at of other content, if both are in mapped memory in one piece
// that can be used: most reads of keys are, and they are small, so that what Find and Write do for
// others costs more than the copy. If done is false it has done nothing.
func (b *Bound) CopyTo(off, n uint64, dst *Bound, at uint64) (done bool, err error) {
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
	_, err = b.engine.Copy(context.Background(), to, from)
	return true, err
}

// mappedPiece returns a range that is not empty as one span of mapped memory, and enters its gates.
func (b *Bound) mappedPiece(in *stay, off, n uint64) (span transport.Span, found bool) {
	for {
		if !b.isThere() || b.enter(in) != nil {
			return transport.Span{}, false
		}
		p := &b.parts[b.first(off)]
		switch inside := off - p.off; {
		case inside+n > p.n:
			return transport.Span{}, false
		case p.of != nil:
			b, off = p.of, p.at+inside
		case p.mapped != nil:
			return transport.MappedSpan(b.name, p.mapped, int64(p.at+inside), devices.Size(n)), true
		default:
			return transport.Span{}, false
		}
	}
}
