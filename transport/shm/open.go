package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// opened is memory of the peer that is open here.
type opened struct {
	provider *provider
	// bytes is the memory if it is mapped; span is the memory in any case.
	bytes []byte
	span  transport.Span
	// file and off are set for memory that is accessed by system calls.
	file *os.File
	off  uint64
	// lent means that the file may be extended.
	lent bool
	// give releases the memory.
	give func() error
	// shown is the memory if it is mapped: it is released with the last of the
	// window and its mappings.
	shown *shown
}

// shown is mapped memory with a count of its users.
type shown struct {
	mapping mapping
	users   atomic.Int32
}

func (s *shown) leave() error {
	if s.users.Add(-1) > 0 {
		return nil
	}
	return s.mapping.unmap()
}

// lasting is a use of mapped memory that outlives its window.
type lasting struct {
	shown *shown
	done  atomic.Bool
}

// Bytes returns the memory.
func (l *lasting) Bytes() []byte { return l.shown.mapping.bytes }

// Close ends the use.
func (l *lasting) Close() error {
	if l.done.Swap(true) {
		return nil
	}
	return l.shown.leave()
}

// Map returns the bytes for use beyond the life of the window.
func (w *opened) Map() (window.Mapping, error) {
	if w.shown == nil {
		return nil, fmt.Errorf("the memory is not mapped: %w", devices.ErrUnsupported)
	}
	// The window is open, so it is a user too.
	w.shown.users.Add(1)
	return &lasting{shown: w.shown}, nil
}

// open opens an offer. On success its files belong to the window or are closed.
func (p *provider) open(o window.Offer, size devices.Size, rights wire.Rights) (*opened, error) {
	at, err := parsePlace(o.Blob)
	if err != nil {
		return nil, err
	}
	files := 1
	if at.how == byIPC {
		files = 0
	}
	if len(o.Files) != files {
		return nil, fmt.Errorf("received %d descriptors instead of %d: %w", len(o.Files), files, wire.ErrFrame)
	}
	switch at.how {
	case byMap:
		return p.openMap(o.Files[0], at.off, size, rights.Allows(wire.Writable))
	case byCall, byLent:
		return p.openCall(o.Files[0], &at, size, rights)
	default:
		return p.openHandle(o, &at, size)
	}
}

func (p *provider) openMap(f *os.File, off uint64, size devices.Size, write bool) (*opened, error) {
	m, err := mapFile(f, off, size, write)
	if err != nil {
		return nil, err
	}
	// The mapping keeps the memory alive.
	if err := f.Close(); err != nil {
		return nil, errors.Join(err, m.unmap())
	}
	s := &shown{mapping: m}
	s.users.Store(1)
	return &opened{provider: p, bytes: m.bytes, span: transport.HostSpan(m.bytes), give: s.leave, shown: s}, nil
}

func (p *provider) openCall(f *os.File, at *place, size devices.Size, rights wire.Rights) (*opened, error) {
	r, err := inspect(f)
	if err != nil {
		return nil, err
	}
	lent := at.how == byLent && rights.Allows(wire.Writable)
	if !lent {
		err = r.has(at.off, size)
	} else if !(devices.Range{Off: devices.Offset(at.off), Len: size}).Within(1<<63 - 1) {
		err = fmt.Errorf("invalid range of a file, %v from %d: %w", size, at.off, devices.ErrRange)
	}
	if err != nil {
		return nil, err
	}
	if rights.Allows(wire.Readable) && !r.readable || rights.Allows(wire.Writable) && !r.writable {
		return nil, errors.New("the descriptor is not open for the required access")
	}
	name := devices.Name("host of " + p.setting.Peer.String())
	return &opened{
		provider: p, file: f, off: at.off, lent: lent, span: transport.FileSpan(name, f, int64(at.off), size), give: f.Close,
	}, nil
}

// openHandle opens memory of a device that both processes use.
func (p *provider) openHandle(o window.Offer, at *place, size devices.Size) (*opened, error) {
	h := devices.Handle{
		Kind: devices.HandleIPC, Device: at.uuid, Offset: devices.Offset(at.off), Size: size,
		Allocation: devices.Size(at.allocation), Bytes: []byte(at.handle),
	}
	if at.how == byVMM {
		h.Kind, h.File = devices.HandleVMM, o.Files[0]
	}
	for _, d := range p.opts.Devices {
		if at.uuid == "" || d.Info().UUID != at.uuid {
			continue
		}
		m, err := devices.Import(context.Background(), d, h)
		if err != nil {
			return nil, err
		}
		// The device keeps the memory without the handle.
		if err := h.Close(); err != nil {
			return nil, errors.Join(err, m.Release())
		}
		return &opened{provider: p, span: transport.DeviceSpan(m.All()), give: m.Release}, nil
	}
	return nil, fmt.Errorf("device %q is not open here: %w", at.uuid, devices.ErrUnsupported)
}

// Start starts an operation: immediately, or by a worker.
func (w *opened) Start(op *window.Op, done window.Completer) {
	w.provider.start(job{window: w, op: op, done: done})
}

// Close releases the peer's memory.
func (w *opened) Close() error {
	if err := w.give(); err != nil {
		return fmt.Errorf("close memory of %s: %w", w.provider.setting.Peer, err)
	}
	return nil
}

// move performs an operation piece by piece: between two pieces it stops if the
// window is withdrawn, the operation given up, or the session ended.
func (w *opened) move(ctx context.Context, op *window.Op) error {
	for done := devices.Size(0); done < op.Size; {
		switch {
		case op.Withdrawn.Load():
			return fmt.Errorf("the memory was withdrawn after %v: %w", done, region.ErrKey)
		case op.GivenUp != nil && op.GivenUp.Load():
			return fmt.Errorf("stopped after %v: %w", done, window.ErrGivenUp)
		case ctx.Err() != nil:
			return errEnded()
		}
		n := min(op.Size-done, piece)
		if err := w.movePiece(ctx, op, done, n); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// movePiece moves n bytes from at, an offset in the operation.
func (w *opened) movePiece(ctx context.Context, op *window.Op, at, n devices.Size) error {
	far, near := op.RemoteOff+uint64(at), op.LocalOff+devices.Offset(at)
	if local := op.Local.Host(near, n); local != nil && w.bytes != nil {
		remote := w.bytes[far : far+uint64(n)]
		if op.Kind == wire.KindPut {
			copy(remote, local)
		} else {
			copy(local, remote)
		}
		return nil
	}
	remote, err := w.span.Part(devices.Offset(far), n)
	if err != nil {
		return err
	}
	if op.Kind == wire.KindGet {
		return op.Local.Store(ctx, near, remote)
	}
	if w.file != nil && !w.lent {
		// A write past the end would extend a file that has been truncated.
		r, err := inspect(w.file)
		if err == nil {
			err = r.has(w.off+far, n)
		}
		if err != nil {
			return err
		}
	}
	return op.Local.Load(ctx, remote, near)
}
