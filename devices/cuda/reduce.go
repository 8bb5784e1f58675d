package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/internal/card"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

// kernels holds the modules that the driver has compiled for a card, one for each type that
// was used.
type kernels struct {
	mu sync.Mutex
	// +checklocks:mu
	modules map[elem.Type]*module
}

// module combines elements of one type.
type module struct {
	handle    cuModule
	functions [elem.Avg + 1]cuFunction
	// failed is the reason why the module could not be built.
	failed error
}

// hasKernels reports whether the library has all functions that kernels need.
func (a *api) hasKernels() bool {
	return dl.AllPresent(a.ModuleLoad, a.ModuleUnload, a.ModuleFunction, a.Launch)
}

// kernel returns the kernel for an operation, compiling it if necessary. The device's
// context must be current.
func (d *device) kernel(t elem.Type, op elem.Op) (cuFunction, error) {
	ks := &d.kernels
	ks.mu.Lock()
	defer ks.mu.Unlock()
	m := ks.modules[t]
	if m == nil {
		m = d.build(t)
		if codeOf(m.failed).Sticky() {
			return 0, m.failed
		}
		if m.failed != nil {
			d.Log.Warn("combining elements on the host", zap.Stringer("type", t), zap.Error(m.failed))
		}
		if ks.modules == nil {
			ks.modules = map[elem.Type]*module{}
		}
		ks.modules[t] = m
	}
	if m.failed != nil {
		return 0, fmt.Errorf("%v of %v on %s: %w: %w", op, t, d.Info().Name, devices.ErrUnsupported, m.failed)
	}
	if op == elem.Avg {
		op = elem.Sum
	}
	return m.functions[op], nil
}

func (d *device) build(t elem.Type) *module {
	m := &module{}
	if !d.api.hasKernels() {
		m.failed = errors.New("the driver's library cannot load modules")
		return m
	}
	m.handle, m.failed = d.api.moduleLoad(ptx(t))
	for op := elem.Sum; op < elem.Avg && m.failed == nil; op++ {
		m.functions[op], m.failed = d.api.function(m.handle, kernelName(t, op))
	}
	if m.failed != nil && m.handle != 0 && !codeOf(m.failed).Sticky() {
		m.failed = errors.Join(m.failed, d.api.moduleUnload(m.handle))
		m.handle = 0
	}
	return m
}

// clear unloads all modules. None may be in use.
func (ks *kernels) clear(a *api) error {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	var errs []error
	for _, m := range ks.modules {
		if m.handle != 0 {
			errs = append(errs, a.moduleUnload(m.handle))
		}
	}
	ks.modules = nil
	return errors.Join(errs...)
}

// Reduce combines elements with kernels.
func (d *device) Reduce(ctx context.Context, dst, src devices.Span, t elem.Type, op elem.Op) error {
	if err := devices.CheckAligned(d, dst, src, t, op); err != nil {
		return err
	}
	leave, err := d.Enter(ctx)
	if err != nil || dst.Len == 0 {
		return end(leave, err)
	}
	defer leave()
	to, from := card.AddressOf(dst), card.AddressOf(src)
	return d.withLane(ctx, func(l *lane) error {
		f, err := d.kernel(t, op)
		if err != nil {
			return err
		}
		return l.pump(ctx, d.api, dst.Len, insidePiece, mover{start: func(s moves.Slot, off, n devices.Size) error {
			return d.api.reduce(l.streams[s], f, to.At(off), from.At(off), n/devices.Size(t.Size()))
		}})
	})
}
