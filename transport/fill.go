package transport

import (
	"context"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// Fill sets every byte of dst: the device does it itself, and the host does it
// for a file and for the caller's bytes. It is counted as PathFill, since it
// moves nothing over a bus. Errors are those of Copy.
func (e *Engine) Fill(ctx context.Context, dst Span, value byte) error {
	if !e.gate.enter() {
		return errEngineClosed()
	}
	defer e.gate.leave()
	r := route{path: PathFill, device: dst.Device(), move: func(ctx context.Context, dst, _ Span) error {
		return e.fill(ctx, dst, value)
	}}
	start := time.Now()
	path, err := r.run(ctx, dst, Span{})
	if dst.n == 0 && err == nil {
		return nil
	}
	if err != nil {
		err = fmt.Errorf("fill %v of %s: %w", dst.n, dst.end(), err)
	}
	e.ended(CopyInfo{Path: path, Device: r.device, Bytes: dst.n, Duration: time.Since(start), Err: err})
	return err
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
