package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/comm"
)

// copyStep is the number of bytes copied between updates of the count: a failed copy reports a
// multiple of it.
const copyStep = uint64(128 * devices.MiB)

// End is one end of a copy: a file of this node or of another one.
type End struct {
	Local  *objects.File
	Remote *File
	Off    uint64
}

// Copy copies n bytes between two files, at least one of which is another node's, and returns
// the number of bytes copied, as objects.Store.CopyRange does. Between files of two other
// nodes those two move the bytes, and between two files of one node that node does.
func (c *Cluster) Copy(ctx context.Context, dst, src End, n uint64) (uint64, error) {
	if (dst.Local == nil) == (dst.Remote == nil) || (src.Local == nil) == (src.Remote == nil) || dst.Local != nil && src.Local != nil {
		return 0, fmt.Errorf("invalid copy between nodes: %w", objects.ErrInvalid)
	}
	var step func(ctx context.Context, dst, src End, n uint64) (uint64, error)
	switch {
	case src.Remote == nil:
		step = c.copyOut
	case dst.Remote == nil:
		step = c.copyIn
	default:
		defer dst.Remote.Changing()()
		step = c.copyThere
		if dst.Remote.n == src.Remote.n {
			step = c.copyInside
		}
	}
	var done uint64
	for done < n {
		d, s := dst, src
		d.Off, s.Off = dst.Off+done, src.Off+done
		want := min(n-done, copyStep)
		k, err := step(ctx, d, s, want)
		done += k
		if done > 0 && (errors.Is(err, context.Canceled) || errors.Is(err, devices.ErrOutOfMemory)) {
			return done, nil
		}
		if err != nil || k < want {
			return done, err
		}
	}
	return done, nil
}

// copyOut copies a file of this node to another node.
func (c *Cluster) copyOut(ctx context.Context, dst, src End, n uint64) (uint64, error) {
	moved, err := src.Local.CopyOut(ctx, src.Off, dst.Remote.Span(dst.Off, n))
	return moved.N, err
}

// copyIn copies a file of another node to this node.
func (c *Cluster) copyIn(ctx context.Context, dst, src End, n uint64) (uint64, error) {
	for try := 0; ; try++ {
		size, err := src.Remote.Length(ctx)
		if err != nil || src.Off >= size {
			return 0, err
		}
		n = min(n, size-src.Off)
		moved, err := dst.Local.CopyIn(ctx, src.Remote.Span(src.Off, n), objects.Write{Off: dst.Off})
		// The file was truncated in the meantime, so its end has changed.
		if try == 0 && moved.N == 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			continue
		}
		return moved.N, err
	}
}

// Length requests the size of the file from its owner.
func (f *File) Length(ctx context.Context) (uint64, error) {
	a, err := f.n.freshAttr(ctx, f.who, f.ino)
	return a.Size, err
}

// copyInside copies between two files of one other node.
func (c *Cluster) copyInside(ctx context.Context, dst, src End, n uint64) (uint64, error) {
	to, from := dst.Remote, src.Remote
	// The handle of one file is requested while holding that of the other, so the two may be
	// in different sessions: then the owner does not know one of them.
	return to.inTurn(ctx, n, func(ctx context.Context, at, n uint64) (proto.MoveAnswer, error) {
		var out proto.MoveAnswer
		err := to.with(ctx, false, func(s *session, handle uint64) error {
			in, other, err := from.opened(ctx)
			if err != nil {
				return err
			}
			if in != s {
				return fmt.Errorf("the session ended in the meantime: %w", comm.ErrNotConnected)
			}
			return to.n.askIn(ctx, s, question{method: proto.MethodCopy, out: &out, in: &proto.CopyAsk{
				Dst: handle, DstOff: dst.Off + at, Src: other, SrcOff: src.Off + at, N: n,
			}})
		})
		return out, err
	})
}

// copyThere makes the node of dst read from the node of src.
func (c *Cluster) copyThere(ctx context.Context, dst, src End, n uint64) (uint64, error) {
	to, from := dst.Remote, src.Remote
	gen := from.generation()
	done, err := to.inTurn(ctx, n, func(ctx context.Context, at, n uint64) (proto.MoveAnswer, error) {
		var out proto.MoveAnswer
		err := to.ask(ctx, false, func(handle uint64) question {
			return question{method: proto.MethodPull, out: &out, in: &proto.PullAsk{
				Cred: credToProto(from.who), Handle: handle, Off: dst.Off + at,
				Node: string(from.n.name), Epoch: uint64(from.n.Record().Epoch),
				Ino: uint64(from.ino), Gen: uint64(gen), SrcOff: src.Off + at, N: n,
			}}
		})
		return out, err
	})
	if done == 0 && cannotReach(err) {
		return c.relay(ctx, dst, src, n)
	}
	return done, err
}

// cannotReach reports whether a node has answered that it cannot reach the other one.
func cannotReach(err error) bool {
	_, answered := errors.AsType[*remoteError](err)
	return answered && (errors.Is(err, ErrUnreachable) || errors.Is(err, ErrNoNode))
}

// relay copies between two nodes through this one.
func (c *Cluster) relay(ctx context.Context, dst, src End, n uint64) (uint64, error) {
	return inPieces(ctx, n, 1, oneSlot, func(ctx context.Context, at, n uint64) (uint64, error) {
		p := make([]byte, n)
		got, err := src.Remote.peek(ctx, p, src.Off+at)
		if err != nil || got == 0 {
			return 0, err
		}
		return dst.Remote.write(ctx, p[:got], objects.Write{Off: dst.Off + at})
	})
}

// inTurn moves n bytes in pieces, one after the other.
func (f *File) inTurn(ctx context.Context, n uint64, move func(ctx context.Context, at, n uint64) (proto.MoveAnswer, error)) (uint64, error) {
	return inPieces(ctx, n, 1, f.n.pace.piece, func(ctx context.Context, at, n uint64) (uint64, error) {
		ctx, cancel := context.WithTimeout(ctx, f.n.c.opts.Timeout)
		defer cancel()
		begun := time.Now()
		out, err := move(ctx, at, n)
		if err != nil {
			return 0, err
		}
		if out.N > n {
			return 0, fmt.Errorf("node %s reported %d bytes copied of %d: %w", f.n.name, out.N, n, proto.ErrBody)
		}
		f.n.pace.took(out.N, time.Since(begun))
		f.open.sized(out.Size, out.Order)
		return out.N, nil
	})
}

// pull reads a file of another node into one of this node, at the request of a third node:
// MethodPull.
func (c *Cluster) pull(ctx context.Context, dst *objects.File, ask *proto.PullAsk) (objects.Moved, error) {
	n, err := c.Node(members.Name(ask.Node))
	if err != nil {
		return objects.Moved{}, err
	}
	if _, err = n.live(ctx); err != nil { // which determines its epoch
		return objects.Moved{}, err
	}
	if now := n.Record().Epoch; ask.Epoch != 0 && now != members.Epoch(ask.Epoch) {
		return objects.Moved{}, fmt.Errorf("node %s has been restarted since: %w", n.name, ErrStale)
	}
	f, err := n.openGen(ctx, credFromProto(ask.Cred), objects.Ino(ask.Ino), ask.Gen)
	if err != nil {
		return objects.Moved{}, err
	}
	defer func() { _ = f.Close(ctx) }() // the file was only read
	// The attributes that came with the handle are current.
	size := f.Size()
	if ask.SrcOff >= size {
		return objects.Moved{}, nil
	}
	span := f.Span(ask.SrcOff, min(ask.N, size-ask.SrcOff))
	return dst.CopyIn(ctx, span, objects.Write{Off: ask.Off})
}
