package cuda

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestStickyErrorLosesTheDevice makes a card fail permanently during work. The stand-in
// ends the process at any further call on its context.
func TestStickyErrorLosesTheDevice(t *testing.T) {
	lib := newStandIn(t)
	for _, code := range []Code{214, 700, 719} {
		t.Run(fmt.Sprint(code), func(t *testing.T) { failInMidWork(t, lib.with(t, "silent=1"), code) })
	}
}

func failInMidWork(t *testing.T, lib standIn, code Code) {
	t.Helper()
	d := lib.driver()
	bad, good := open(t, d, "cuda:0"), open(t, d, "cuda:1")
	small, large := alloc(t, bad, 1<<20), alloc(t, bad, 20<<20)
	shared, err := bad.AllocShared(t.Context(), 100, devices.HandleIPC)
	if err != nil {
		t.Fatal(err)
	}
	other := alloc(t, good, 20<<20)
	put(t, small.All(), 1)
	put(t, other.All(), 2)
	pinned := kit.Bytes(3, 0, 5000)
	unpin, err := bad.PinHost(pinned)
	if err != nil {
		t.Fatal(err)
	}
	before := bad.Epoch()

	lib.set("silent=1", fmt.Sprintf("fail=cuMemcpyDtoHAsync_v2:0:%d:0", code))
	p := make([]byte, small.Size())
	err = bad.CopyOut(t.Context(), p, small.All())
	if !errors.Is(err, devices.ErrDevice) || codeOf(err) != code {
		t.Fatalf("the card fails: %v", err)
	}
	if bad.Epoch() == before {
		t.Error("the epoch is the same")
	}
	lost(t, bad, small, large)
	if _, err := bad.Export(t.Context(), shared); !errors.Is(err, devices.ErrLost) {
		t.Errorf("export: %v", err)
	}
	unpin()
	if err := shared.Release(); err != nil {
		t.Errorf("release: %v", err)
	}
	if u, err := bad.Usage(); err != nil || u.Free != 0 || u.Used != 1<<20+20<<20 {
		t.Errorf("usage %+v, %v", u, err)
	}
	holds(t, other.All(), 2, 0)
	if err := good.CopyPeer(t.Context(), part(t, other, 0, small.Size()), small.All()); !errors.Is(err, devices.ErrLost) {
		t.Errorf("copy from the card: %v", err)
	}
	put(t, other.All(), 4)
	holds(t, other.All(), 4, 0)
}

// lost checks that nothing of a failed device can be used.
func lost(t *testing.T, dev *device, mems ...*devices.Memory) {
	t.Helper()
	ctx := t.Context()
	for _, mem := range mems {
		p := make([]byte, mem.Size())
		for what, err := range map[string]error{
			"copy in":  dev.CopyIn(ctx, mem.All(), p),
			"copy out": dev.CopyOut(ctx, p, mem.All()),
			"copy":     dev.Copy(ctx, mem.All(), mem.All()),
			"fill":     dev.Fill(ctx, mem.All(), 1),
		} {
			if !errors.Is(err, devices.ErrLost) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	_, allocErr := dev.Alloc(ctx, 100)
	_, pinErr := dev.PinHost(make([]byte, 100))
	_, sharedErr := dev.AllocShared(ctx, 100, devices.HandleIPC)
	_, importErr := dev.Import(ctx, devices.Handle{Kind: devices.HandleIPC, Size: 1, Bytes: make([]byte, ipcHandleSize)})
	for what, err := range map[string]error{
		"alloc": allocErr, "pin": pinErr, "alloc shared": sharedErr, "import": importErr,
	} {
		if !errors.Is(err, devices.ErrDevice) || !strings.Contains(err.Error(), "cuda0 has failed") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestErrorText checks the error text for people.
func TestErrorText(t *testing.T) {
	lib := newStandIn(t)
	d := open(t, lib.driver(), "cuda:0")
	mem := alloc(t, d, 100)
	lib.set("fail=cuMemcpyDtoHAsync_v2:1:1", "fail=cuMemcpyHtoDAsync_v2:1:4711", "fail=cuMemcpyDtoHAsync_v2:2:700")
	p := make([]byte, 100)
	for _, want := range []string{
		"cuMemcpyDtoHAsync: CUDA_ERROR_INVALID_VALUE (1): invalid argument",
		"cuMemcpyDtoHAsync: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered; " +
			"the card's memory is lost to this process: unmount and mount again",
	} {
		if err := d.CopyIn(t.Context(), mem.All(), p); err != nil && err.Error() != "cuMemcpyHtoDAsync: unknown CUDA error (4711)" {
			t.Errorf("copy in: %v", err)
		}
		if err := d.CopyOut(t.Context(), p, mem.All()); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

func TestSticky(t *testing.T) {
	for code, want := range map[Code]bool{
		0: false, 1: false, 2: false, 4: true, 46: false, 100: false, 205: false, 214: true, 217: false, 220: true,
		226: true, 304: false, 700: true, 701: false, 702: true, 704: false, 709: true, 710: true, 711: false,
		712: false, 714: true, 715: true, 716: true, 717: true, 718: true, 719: true, 720: false, 721: true,
		800: false, 803: false, 810: true, 911: true, 999: false,
	} {
		if code.Sticky() != want {
			t.Errorf("code %d: sticky %v", code, !want)
		}
	}
}

// TestFailureUnderLoad makes a card fail under many users, all of which must return.
func TestFailureUnderLoad(t *testing.T) {
	lib := newStandIn(t)
	d := lib.driver()
	bad, good := open(t, d, "cuda:0"), open(t, d, "cuda:1")
	mem, other := alloc(t, bad, 1<<20), alloc(t, good, 1<<20)
	lib.set("fail=cuStreamSynchronize:100:719:0")
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			p := make([]byte, 1<<20)
			for n := 0; ; n++ {
				err := errors.Join(bad.CopyOut(t.Context(), p, mem.All()), bad.Fill(t.Context(), mem.All(), byte(i)))
				if errors.Is(err, devices.ErrLost) {
					return
				}
				if err != nil && !errors.Is(err, devices.ErrDevice) {
					t.Error(err)
				}
				if err := good.Fill(t.Context(), other.All(), byte(n)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// allCalls lists the calls that may fail in the work of TestEveryCallFails without leaking
// resources of the card: those that allocate something.
func allCalls() []string {
	return []string{
		"cuDevicePrimaryCtxRetain", "cuMemGetAllocationGranularity", "cuStreamCreate", "cuStreamSynchronize",
		"cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemHostAlloc", "cuMemHostRegister_v2", "cuMemcpyHtoDAsync_v2",
		"cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyPeerAsync", "cuMemsetD8Async",
		"cuCtxEnablePeerAccess", "cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess",
		"cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemGetAllocationPropertiesFromHandle",
		"cuMemGetAddressRange_v2", "cuIpcGetMemHandle", "cuCtxSetCurrent", "cuDeviceCanAccessPeer",
	}
}

// TestEveryCallFails makes each call fail once, at several points of work that uses all
// abilities, at more points in make check. The work must report the error and leak nothing:
// the stand-in ends the process if resources of a card remain when its context is released.
func TestEveryCallFails(t *testing.T) {
	lib := newStandIn(t, "memory=67108864")
	d := lib.driver()
	if err := everything(t.Context(), d); err != nil {
		t.Fatalf("without a fault: %v", err)
	}
	places := kit.Rounds(2, 2, 4)
	for _, call := range allCalls() {
		for nth := 1; nth <= places; nth++ {
			lib.set(fmt.Sprintf("fail=%s:%d:%d", call, nth, 1+nth%2)) // out of memory, and wrong
			err := everything(t.Context(), d)
			if err == nil && nth == 1 {
				t.Errorf("%s is never made", call)
			}
			if err == nil {
				break
			}
			if !errors.Is(err, devices.ErrDevice) && !errors.Is(err, devices.ErrOutOfMemory) {
				t.Errorf("%s %d: %v", call, nth, err)
			}
		}
	}
}

// everything opens two cards, uses all of their abilities, and closes them.
func everything(ctx context.Context, d *Driver) (err error) {
	var devs [2]devices.Device
	for i := range devs {
		dev, oerr := d.Open(ctx, devices.Spec{Family: Family, Ordinal: devices.Ordinal(i)})
		if oerr != nil {
			return oerr
		}
		defer func() { err = errors.Join(err, dev.Close()) }()
		devs[i] = dev
	}
	var mems []*devices.Memory
	defer func() {
		for _, m := range mems {
			err = errors.Join(err, m.Release())
		}
	}()
	take := func(m *devices.Memory, merr error) *devices.Memory {
		if merr != nil {
			err = errors.Join(err, merr)
			return nil
		}
		mems = append(mems, m)
		return m
	}
	for _, n := range []devices.Size{virtualFrom, 5 << 20} {
		a, b := take(devs[0].Alloc(ctx, n)), take(devs[1].Alloc(ctx, n))
		if a == nil || b == nil {
			return err
		}
		if merr := moveAbout(ctx, a, b); merr != nil {
			return merr
		}
	}
	for _, kind := range devices.ExportKinds(devs[0]) {
		m := take(devices.AllocShared(ctx, devs[0], 5000, kind))
		if m == nil {
			return err
		}
		h, herr := devices.Export(ctx, m)
		if herr != nil {
			return herr
		}
		if kind == devices.HandleVMM {
			take(devices.Import(ctx, devs[0], h))
		}
		if herr := h.Close(); herr != nil {
			return herr
		}
	}
	_, uerr := devs[0].Usage()
	return errors.Join(err, uerr)
}

// moveAbout copies bytes between two cards and the host by every route.
func moveAbout(ctx context.Context, a, b *devices.Memory) error {
	p := kit.Bytes(5, 0, int(a.Size()))
	one, other := a.Device(), b.Device()
	if err := one.CopyIn(ctx, a.All(), p); err != nil {
		return err
	}
	pinner, ok := other.(devices.Pinner)
	if !ok {
		return errors.New("no pinner")
	}
	unpin, err := pinner.PinHost(p)
	if err != nil {
		return err
	}
	defer unpin()
	if err := errors.Join(devices.CopyPeer(ctx, b.All(), a.All()), other.CopyOut(ctx, p, b.All())); err != nil {
		return err
	}
	if at := kit.DiffAt(p, 5, 0); at >= 0 {
		return fmt.Errorf("byte %d differs", at)
	}
	up := devices.Span{Mem: a, Range: devices.Range{Off: 1000, Len: a.Size() - 1000}}
	down := devices.Span{Mem: a, Range: devices.Range{Len: a.Size() - 1000}}
	return errors.Join(one.Copy(ctx, up, down), one.Fill(ctx, down, 1), other.CopyIn(ctx, b.All(), p))
}
