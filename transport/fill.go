package transport

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// Fill sets every byte of dst: the device does it itself, and the host does it
// for a file and for the caller's bytes. It is counted as PathFill, since it
// moves nothing over a bus. Errors are those of Copy.
func (e *Engine) Fill(ctx context.Context, dst Span, value byte) error {
	if !e.gate.Enter() {
		return errEngineClosed()
	}
	defer e.gate.Leave()
	info, start := CopyInfo{Path: PathFill, Device: dst.Device(), Bytes: dst.n}, e.clock()
	if info.Err = ready(ctx, &dst); info.Err == nil {
		if dst.n == 0 {
			return nil
		}
		info.Err = e.fill(ctx, dst, value)
	}
	if info.Err != nil {
		info.Err = fmt.Errorf("fill %v of %s: %w", dst.n, dst.end(), info.Err)
	}
	e.ended(&info, start)
	return info.Err
}

func (e *Engine) fill(ctx context.Context, dst Span, value byte) error {
	switch dst.kind() {
	case kindDevice:
		return dst.dev.Mem.Device().Fill(ctx, dst.dev, value)
	case kindFile:
		return e.fillFile(ctx, dst, value)
	case kindRemote:
		return fmt.Errorf("fill remote memory: %w", devices.ErrUnsupported)
	case kindHost:
	}
	return inPieces(ctx, dst.n, piece, func(off, n devices.Size) error {
		setBytes(dst.host[off:off+n], value)
		return nil
	})
}

// fillFile writes one slot repeatedly.
func (e *Engine) fillFile(ctx context.Context, dst Span, value byte) error {
	slot, err := e.slots.Get(ctx, min(e.opts.ChunkSize, dst.n))
	if err != nil {
		return err
	}
	defer slot.Release()
	setBytes(slot.Bytes(), value)
	return inPieces(ctx, dst.n, devices.Size(len(slot.Bytes())), func(off, n devices.Size) error {
		return writeFile(dst.sub(off, n), slot.Bytes()[:n])
	})
}

// setBytes is memset: each copy doubles the length that is set.
func setBytes(p []byte, value byte) {
	if value == 0 || len(p) == 0 {
		clear(p)
		return
	}
	p[0] = value
	for done := 1; done < len(p); done *= 2 {
		copy(p[done:], p[:done])
	}
}
