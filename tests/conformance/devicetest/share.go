package devicetest

import (
	"context"
	"errors"
	"os"

	"github.com/hmcfs/hmcfs/devices"
)

// checkExport exports memory of every supported kind, and tries to export memory that cannot be
// exported.
func checkExport(e *env) {
	kinds := devices.ExportKinds(e.dev)
	_, err := devices.AllocShared(e.ctx, e.dev, 4096, "no-such-kind")
	e.fails("AllocShared of an unknown kind", err, devices.ErrUnsupported)
	plain := e.alloc(4096)
	_, err = devices.Export(e.ctx, plain)
	e.fails("Export of plain memory", err, devices.ErrUnsupported)
	e.release(plain)
	before := e.used()
	for _, kind := range kinds {
		e.exports(kind)
		e.refusesToExport(kind)
	}
	if now := e.used(); now != before {
		e.Errorf("%v in use after all exports, %v before", now, before)
	}
}

// exports checks one kind of export with the owner as the only user.
func (e *env) exports(kind devices.HandleKind) {
	e.Helper()
	want := Bytes(e.within(1024*kib+777), 1)
	before := e.used()
	mem := e.shared(kind, want)
	if used := e.used(); used < before+devices.Size(len(want)) {
		e.Errorf("%s: memory that is shared is not counted", kind)
	}
	for range 2 {
		h, err := devices.Export(e.ctx, mem)
		e.ok(err)
		e.checkHandle(h, kind, mem)
		e.ok(h.Close())
		e.ok(h.Close())
	}
	e.holds(mem, want)
	e.ok(e.dev.Fill(e.ctx, mem.All(), 5))
	e.release(mem)
}

// shared allocates exportable memory with the given content, followed by zeros.
func (e *env) shared(kind devices.HandleKind, content []byte) *devices.Memory {
	e.Helper()
	mem, err := devices.AllocShared(e.ctx, e.dev, devices.Size(len(content)), kind)
	e.ok(err)
	if mem.Size() < devices.Size(len(content)) || mem.Device() != e.dev || mem.Epoch() != e.dev.Epoch() {
		e.Fatalf("%s: %d bytes of epoch %d for %d", kind, uint64(mem.Size()), mem.Epoch(), len(content))
	}
	if mem.Size() > devices.Size(len(content)) {
		e.Logf("%s: %d bytes for %d", kind, uint64(mem.Size()), len(content))
		e.ok(e.dev.Fill(e.ctx, mem.All(), 0))
	}
	e.ok(e.dev.CopyIn(e.ctx, e.span(mem, 0, len(content)), content))
	return mem
}

func (e *env) checkHandle(h devices.Handle, kind devices.HandleKind, mem *devices.Memory) {
	e.Helper()
	part := devices.Range{Off: h.Offset, Len: h.Size}
	switch {
	case h.Kind != kind, h.Size != mem.Size():
		e.Fatalf("handle %+v of %d bytes", h, uint64(mem.Size()))
	case h.Device != e.dev.Info().UUID:
		e.Errorf("handle of the card %q, the device is %q", h.Device, e.dev.Info().UUID)
	case h.Allocation != 0 && !part.Within(h.Allocation):
		e.Errorf("handle of %v in an allocation of %d bytes", part, uint64(h.Allocation))
	case (kind == devices.HandleIPC) != (h.File == nil), (kind == devices.HandleIPC) != (len(h.Bytes) > 0):
		e.Errorf("handle %+v", h)
	}
}

// refusesToExport tries to export memory that cannot be exported.
func (e *env) refusesToExport(kind devices.HandleKind) {
	e.Helper()
	_, err := devices.AllocShared(e.ctx, e.dev, 0, kind)
	e.fails("AllocShared of nothing", err, devices.ErrRange)
	for _, n := range []devices.Size{e.dev.Info().Total + 1, 1 << 62, ^devices.Size(0)} {
		_, err = devices.AllocShared(e.ctx, e.dev, n, kind)
		e.outOfMemory(err, n)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	_, err = devices.AllocShared(ctx, e.dev, 4096, kind)
	e.fails("AllocShared, cancelled", err, context.Canceled)

	closed := &env{T: e.T, open: e.open, ctx: e.ctx, dev: e.another()}
	mem := closed.shared(kind, Bytes(100, 1))
	e.ok(closed.dev.Close())
	_, err = devices.Export(e.ctx, mem)
	e.fails("Export of a closed device", err, devices.ErrClosed)
	_, err = devices.AllocShared(e.ctx, closed.dev, 4096, kind)
	e.fails("AllocShared of a closed device", err, devices.ErrClosed)
	e.release(mem)
}

// checkImport opens valid and invalid handles of this process itself.
func checkImport(e *env) {
	if _, ok := e.dev.(devices.Importer); !ok {
		_, err := devices.Import(e.ctx, e.dev, devices.Handle{Kind: devices.HandleIPC, Size: 1})
		e.fails("Import without the ability", err, devices.ErrUnsupported)
		return
	}
	_, err := devices.Import(e.ctx, e.dev, devices.Handle{Kind: "no-such-kind", Size: 1})
	e.fails("Import of an unknown kind", err, devices.ErrUnsupported)
	for _, kind := range devices.ExportKinds(e.dev) {
		want := Bytes(e.within(1024*kib+777), 1)
		mem := e.shared(kind, want)
		before := e.used()
		h, err := devices.Export(e.ctx, mem)
		e.ok(err)
		e.imports(h, mem, want)
		e.ok(h.Close())
		if now := e.used(); now != before {
			e.Errorf("%s: %v in use after the imports, %v before", kind, now, before)
		}
		e.release(mem)
	}
}

// imports opens a handle of this process, and invalid variants of it. A device may export a kind
// that it cannot open.
func (e *env) imports(h devices.Handle, mem *devices.Memory, content []byte) {
	e.Helper()
	probe, err := devices.Import(e.ctx, e.dev, h)
	switch {
	case err == nil:
		e.release(probe)
	case errors.Is(err, devices.ErrUnsupported):
		e.Logf("%s handles are given and not opened", h.Kind)
		return
	}
	if h.Kind == devices.HandleIPC {
		e.fails("Import of this process's own handle", err, devices.ErrHandle)
	} else {
		e.ok(err)
		e.importsOwn(h, mem, content)
	}
	e.refusesToImport(h)
}

// importsOwn opens a handle in the process that created it: twice as a whole, and a part.
func (e *env) importsOwn(h devices.Handle, mem *devices.Memory, content []byte) {
	e.Helper()
	one, err := devices.Import(e.ctx, e.dev, h)
	e.ok(err)
	part := h
	part.Offset, part.Size = h.Offset+1001, 5000
	two, err := devices.Import(e.ctx, e.dev, part)
	e.ok(err)
	if one.Size() != h.Size || two.Size() != part.Size {
		e.Fatalf("imports of %d and %d bytes", uint64(one.Size()), uint64(two.Size()))
	}
	e.holds(two, content[1001:6001])
	// Written through one mapping, read through all.
	Pattern(content[2000:4000], 8, 0)
	e.ok(e.dev.CopyIn(e.ctx, e.span(one, 2000, 2000), content[2000:4000]))
	e.holds(two, content[1001:6001])
	e.release(one)
	e.holds(two, content[1001:6001])
	e.release(two)
	got := make([]byte, len(content))
	e.ok(e.dev.CopyOut(e.ctx, got, e.span(mem, 0, len(got))))
	e.ok(Compare(got, content))
}

// refusesToImport makes a handle invalid in every possible way.
func (e *env) refusesToImport(good devices.Handle) {
	e.Helper()
	null, err := os.Open(os.DevNull)
	e.ok(err)
	defer func() { _ = null.Close() }()
	whole := good.Allocation
	spoiled := map[string]func(h *devices.Handle){
		"of no bytes":         func(h *devices.Handle) { h.Size = 0 },
		"of another card":     func(h *devices.Handle) { h.Device = "GPU-00000000-1111-2222-3333-444444444444" },
		"past the end":        func(h *devices.Handle) { h.Offset, h.Size = devices.Offset(whole), 1 },
		"too long":            func(h *devices.Handle) { h.Offset, h.Size = 1, whole },
		"of an end that laps": func(h *devices.Handle) { h.Offset, h.Size = ^devices.Offset(0)-10, 4096 },
		"of all there could be": func(h *devices.Handle) {
			h.Allocation, h.Offset, h.Size = 0, 4096, ^devices.Size(0)-4095
		},
	}
	if good.Kind == devices.HandleIPC {
		spoiled["without bytes"] = func(h *devices.Handle) { h.Bytes = nil }
		spoiled["cut short"] = func(h *devices.Handle) { h.Bytes = h.Bytes[:len(h.Bytes)-1] }
		spoiled["of zeros"] = func(h *devices.Handle) { h.Bytes = make([]byte, len(h.Bytes)) }
		spoiled["of noise"] = func(h *devices.Handle) { h.Bytes = Bytes(len(h.Bytes), 3) }
	} else {
		spoiled["without a descriptor"] = func(h *devices.Handle) { h.File = nil }
		spoiled["of a device file"] = func(h *devices.Handle) { h.File = null }
		spoiled["of more than there is"] = func(h *devices.Handle) {
			h.Allocation, h.Size = 4*whole, 3*whole
		}
	}
	if e.dev.Info().UUID == "" {
		delete(spoiled, "of another card")
	}
	for name, spoil := range spoiled {
		h := good
		spoil(&h)
		mem, err := devices.Import(e.ctx, e.dev, h)
		if err == nil {
			e.Errorf("a %s handle %s is opened", good.Kind, name)
			e.release(mem)
			continue
		}
		if !errors.Is(err, devices.ErrHandle) {
			e.Errorf("a %s handle %s: %v", good.Kind, name, err)
		}
	}
}
