package faulty

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/devicetest"
)

func TestConformance(t *testing.T) {
	for name, p := range map[string]sim.Params{
		"plain":  {Size: 16 * devices.MiB},
		"mapped": {Size: 16 * devices.MiB, Mapped: true},
	} {
		t.Run(name, func(t *testing.T) {
			devicetest.Run(t, func(*testing.T) devices.Device { return Wrap(sim.New(0, p), nil) })
		})
	}
}

// TestConformanceOfFiles wraps a device with a file tier.
func TestConformanceOfFiles(t *testing.T) {
	devicetest.Run(t, func(t *testing.T) devices.Device {
		reg := devices.NewRegistry(host.NewDriver(host.Options{Dir: t.TempDir(), NoMount: true}))
		inner, err := reg.Open(t.Context(), "host,size=16MiB")
		if err != nil {
			t.Skipf("needs a tmpfs: %v", err)
		}
		tier, ok := inner.(*host.Device)
		if !ok {
			t.Fatalf("the host is a %T", inner)
		}
		t.Cleanup(func() {
			if err := tier.Destroy(); err != nil {
				t.Error(err)
			}
		})
		return Wrap(inner, nil)
	})
}

// able is a device with the abilities of its parts.
type (
	plain   struct{ devices.Device }
	canMap  struct{ devices.HostMapper }
	canPeer struct{ devices.PeerCopier }
	canPin  struct{ devices.Pinner }
	canFile struct{ devices.FileTier }
)

func TestAbilitiesStay(t *testing.T) {
	base := plain{sim.New(0, sim.Params{Size: devices.MiB})}
	for _, dev := range []devices.Device{
		base,
		struct {
			plain
			canMap
		}{plain: base},
		struct {
			plain
			canPeer
		}{plain: base},
		struct {
			plain
			canPin
			canFile
		}{plain: base},
		struct {
			plain
			canMap
			canPin
			canFile
		}{plain: base},
		struct {
			plain
			canMap
			canPeer
			canPin
			canFile
		}{plain: base},
	} {
		want := abilitiesOf(dev)
		if got := abilitiesOf(Wrap(dev, nil)); got != want {
			t.Errorf("abilities %+v, the inner device has %+v", got, want)
		}
	}
	// Every combination has its type.
	for bits := range 16 {
		h := has{bits&1 > 0, bits&2 > 0, bits&4 > 0, bits&8 > 0}
		if got := abilitiesOf((&core{}).with(h)); got != h {
			t.Errorf("abilities %+v, want %+v", got, h)
		}
	}
}

// TestEachKind fails one kind at a time and checks that no other is affected.
func TestEachKind(t *testing.T) {
	ctx := context.Background()
	boom := errors.New("boom")
	for kind := Alloc; kind <= Map; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			armed := false
			dev := Wrap(sim.New(0, sim.Params{Size: devices.MiB, Mapped: true}), func(op Op) error {
				if armed && op.Kind == kind {
					return fmt.Errorf("%w at %d", boom, op.Seq)
				}
				return nil
			})
			defer func() { _ = dev.Close() }()
			mem, err := dev.Alloc(ctx, 100)
			if err != nil {
				t.Fatal(err)
			}
			armed = true
			buf := make([]byte, 100)
			_, allocErr := dev.Alloc(ctx, 1)
			_, mapErr := devices.MapHost(ctx, mem.All(), devices.ReadOnly)
			_, usageErr := dev.Usage()
			got := []error{
				Alloc: allocErr, CopyIn: dev.CopyIn(ctx, mem.All(), buf), CopyOut: dev.CopyOut(ctx, buf, mem.All()),
				Copy: dev.Copy(ctx, mem.All(), mem.All()), Fill: dev.Fill(ctx, mem.All(), 1),
				Usage: usageErr, Map: mapErr, Free: mem.Release(),
			}
			for k, err := range got {
				if failed := errors.Is(err, boom) && errors.Is(err, devices.ErrDevice); failed != (Kind(k) == kind) {
					t.Errorf("%v: %v", Kind(k), err)
				}
			}
		})
	}
}

// sharer is a device whose memory can be opened anywhere in this process.
type sharer struct {
	devices.Device
	mem *devices.Memory
}

func (s *sharer) ExportKinds() []devices.HandleKind { return []devices.HandleKind{devices.HandleMemfd} }

func (s *sharer) AllocShared(ctx context.Context, n devices.Size, _ devices.HandleKind) (*devices.Memory, error) {
	return s.Alloc(ctx, n)
}

func (s *sharer) Export(_ context.Context, m *devices.Memory) (devices.Handle, error) {
	s.mem = m
	return devices.Handle{Kind: devices.HandleMemfd, Size: m.Size()}, nil
}

func (s *sharer) Import(_ context.Context, h devices.Handle) (*devices.Memory, error) {
	if h.Kind != devices.HandleMemfd {
		return nil, devices.ErrHandle
	}
	s.mem.Retain()
	return s.mem, nil
}

// TestShare passes export and import through, and fails each of them.
func TestShare(t *testing.T) {
	ctx, boom := t.Context(), errors.New("boom")
	var fail Kind = -1
	dev := Wrap(&sharer{Device: sim.New(0, sim.Params{Size: devices.MiB})}, func(op Op) error {
		if op.Kind == fail {
			return boom
		}
		return nil
	})
	defer func() { _ = dev.Close() }()
	if kinds := devices.ExportKinds(dev); len(kinds) != 1 || kinds[0] != devices.HandleMemfd {
		t.Errorf("kinds %v", kinds)
	}
	mem, err := devices.AllocShared(ctx, dev, 5000, devices.HandleMemfd)
	if err != nil {
		t.Fatal(err)
	}
	want := devicetest.Bytes(5000, 1)
	if err = dev.CopyIn(ctx, mem.All(), want); err != nil {
		t.Fatal(err)
	}
	h, err := devices.Export(ctx, mem)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := devices.Import(ctx, dev, h)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5000)
	if err := errors.Join(dev.CopyOut(ctx, got, opened.All()), devicetest.Compare(got, want), opened.Release()); err != nil {
		t.Error(err)
	}
	if _, err := devices.Import(ctx, dev, devices.Handle{}); !errors.Is(err, devices.ErrHandle) {
		t.Errorf("a wrong handle: %v", err)
	}
	for kind, call := range map[Kind]func() error{
		Alloc:  func() error { _, err := devices.AllocShared(ctx, dev, 1, devices.HandleMemfd); return err },
		Export: func() error { _, err := devices.Export(ctx, mem); return err },
		Import: func() error { _, err := devices.Import(ctx, dev, h); return err },
	} {
		if fail = kind; !errors.Is(call(), boom) {
			t.Errorf("%v does not fail", kind)
		}
	}
	if err := mem.Release(); err != nil {
		t.Error(err)
	}
}

// TestFreeFaultFrees checks that a fault in free leaks nothing.
func TestFreeFaultFrees(t *testing.T) {
	inner := sim.New(0, sim.Params{Size: devices.MiB})
	dev := Wrap(inner, EveryNth(1, Free, devices.ErrDevice))
	mem, err := dev.Alloc(context.Background(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.Release(); !errors.Is(err, devices.ErrDevice) {
		t.Error(err)
	}
	if u, err := inner.Usage(); err != nil || u.Used != 0 {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestEveryNthAndSentinels(t *testing.T) {
	ctx := context.Background()
	oom := &devices.OutOfMemoryError{Device: "sim0", Asked: 1}
	dev := Wrap(sim.New(0, sim.Params{Size: devices.MiB}), EveryNth(3, Alloc, oom))
	defer func() { _ = dev.Close() }()
	for i := 1; i <= 9; i++ {
		_, err := dev.Alloc(ctx, 1)
		var typed *devices.OutOfMemoryError
		if failed := errors.As(err, &typed); failed != (i%3 == 0) || errors.Is(err, devices.ErrDevice) {
			t.Errorf("allocation %d: %v", i, err)
		}
	}
	if Simulated(dev) == nil {
		t.Error("the simulated device can't be reached through the wrapper")
	}
}
