package local_test

import (
	"context"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/hetero/local"
	"github.com/hmcfs/hmcfs/tests/conformance/heterotest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
)

// hostRoom is the size of the host device of a world, in bytes.
const hostRoom = 16 * devices.MiB

// world is a store of this process, whose clients adopt memory of its devices.
type world struct {
	store *objects.Store
	devs  []devices.Device
	// names are the devices that clients have memory on.
	names []devices.Name
	huge  devices.Name
}

// newWorld opens a store over the host's memory and devices.
func newWorld(t *testing.T, devs ...devices.Device) *world {
	t.Helper()
	w := &world{devs: append([]devices.Device{openHost(t)}, devs...)}
	for _, d := range devs {
		w.names = append(w.names, d.Info().Name)
	}
	meta, err := metadata.Open(t.Context(), memkv.New(), metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if w.store, err = objects.Open(t.Context(), objects.Options{Meta: meta, Engine: engine, Devices: w.devs}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.store.Close(context.Background(), objects.CloseOptions{}); err != nil {
			t.Error(err)
		}
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
		for _, d := range w.devs {
			w.closeDevice(t, d)
		}
		if err := meta.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// closeDevice closes a device whose memory is no longer in use. On the host device, files
// remain that the store keeps for its next run.
func (w *world) closeDevice(t *testing.T, d devices.Device) {
	t.Helper()
	files, isHost := d.(*host.Device)
	if u, err := d.Usage(); !isHost && (err != nil || u.Used != 0) {
		t.Errorf("%s: %v in use after the store closed, %v", d.Info().Name, u.Used, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if isHost {
		if err := files.Destroy(); err != nil {
			t.Error(err)
		}
	}
}

func openHost(t *testing.T) devices.Device {
	t.Helper()
	reg := devices.NewRegistry(host.NewDriver(host.Options{Dir: t.TempDir(), NoMount: true}))
	d, err := reg.Open(t.Context(), "host,size=16MiB")
	if err != nil {
		t.Skipf("needs a tmpfs: %v", err)
	}
	return d
}

// sims returns n simulated devices.
func sims(n int, p sim.Params) []devices.Device {
	out := make([]devices.Device, n)
	for i := range out {
		out[i] = sim.New(devices.Ordinal(i), p)
	}
	return out
}

func (w *world) Devices() []devices.Name { return w.names }
func (w *world) Huge() devices.Name      { return w.huge }
func (w *world) HostRoom() devices.Size  { return hostRoom }

func (w *world) Join(t testing.TB) heterotest.Peer {
	t.Helper()
	p := &peer{world: w, client: local.New(local.Options{Store: w.store})}
	t.Cleanup(func() { p.Kill(t) })
	return p
}

func (w *world) Listen(t testing.TB) heterotest.Listener {
	t.Helper()
	l := listener{w.store.Listen()}
	t.Cleanup(l.events.Close)
	return l
}

type listener struct{ events *objects.Events }

func (l listener) Next(ctx context.Context) (heterotest.Event, error) {
	e, err := l.events.Next(ctx)
	return heterotest.Event{Kind: string(e.Kind), Key: e.Key, Size: e.Size}, err
}

// peer is a client of this process.
type peer struct {
	world  *world
	client *local.Client
}

func (p *peer) Client() hetero.Client { return p.client }

// Kill closes the client: within one process there is no other way to end it.
func (p *peer) Kill(t testing.TB) {
	t.Helper()
	if err := p.client.Close(); err != nil {
		t.Errorf("end a client: %v", err)
	}
}

func (p *peer) Memory(t testing.TB, device devices.Name, n devices.Size) heterotest.Memory {
	t.Helper()
	var m *devices.Memory
	for _, d := range p.world.devs {
		if d.Info().Name != device {
			continue
		}
		var err error
		if m, err = d.Alloc(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	})
	id, err := p.client.PreRegister(t.Context(), hetero.Memory{Device: device, Local: m})
	if err != nil {
		t.Fatal(err)
	}
	return memory{id, m}
}

type memory struct {
	id  hetero.MemoryID
	mem *devices.Memory
}

func (m memory) ID() hetero.MemoryID { return m.id }

func (m memory) Write(t testing.TB, off devices.Offset, p []byte) {
	t.Helper()
	s, err := m.mem.Span(devices.Range{Off: off, Len: devices.Size(len(p))})
	if err == nil {
		err = m.mem.Device().CopyIn(context.Background(), s, p)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m memory) Read(t testing.TB, off devices.Offset, p []byte) {
	t.Helper()
	s, err := m.mem.Span(devices.Range{Off: off, Len: devices.Size(len(p))})
	if err == nil {
		err = m.mem.Device().CopyOut(context.Background(), p, s)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSuite runs the conformance suite on simulated devices whose memory is mapped. The next two tests
// run it on devices of other kinds.
func TestSuite(t *testing.T) {
	kit.Check(t)
	w := newWorld(t, sims(2, sim.Params{Size: 12 * devices.GiB, Mapped: true})...)
	w.huge = w.names[0]
	heterotest.Run(t, w)
}

func TestSuiteOfCard(t *testing.T) {
	kit.Check(t)
	w := newWorld(t, sims(1, sim.Params{Size: 256 * devices.MiB})...)
	w.names = append(w.names, "host")
	heterotest.Run(t, w)
}

func TestSuiteOfOpenCL(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "opencl")
	d, err := devices.NewRegistry(opencl.NewDriver(opencl.Options{})).Open(t.Context(), "opencl:0,size=256MiB")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, append([]devices.Device{d}, sims(1, sim.Params{Size: 256 * devices.MiB})...)...)
	var apart []string
	if !kit.Exhaustive() {
		apart = append(apart, "B7 the most keys") // as on the simulated card
	}
	heterotest.RunBut(t, w, apart...)
}
