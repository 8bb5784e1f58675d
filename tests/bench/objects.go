package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/hetero/local"
	"github.com/hmcfs/hmcfs/transport"
)

// lobby has what the rows of keyed objects are measured with: a store in this
// process with two clients of it, and a mount with one over its socket.
type lobby struct {
	undo

	opts   options
	lab    *lab // only its directory and its mount
	devs   []devices.Device
	engine *transport.Engine
	store  *objects.Store
	giver  *party
	taker  *party
}

// newLobby sets everything up, or leaves nothing behind.
func newLobby(ctx context.Context, o options) (b *lobby, err error) {
	b = &lobby{opts: o, lab: &lab{opts: o}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if os.Geteuid() != 0 {
		return b, errors.New("mounting needs root")
	}
	if b.lab.opts.hmcfs, err = filepath.Abs(o.hmcfs); err != nil {
		return b, err
	}
	if b.lab.dir, err = b.folder(); err != nil {
		return b, err
	}
	b.later(b.lab.close)
	if err = b.openStore(ctx); err != nil {
		return b, err
	}
	b.giver, b.taker = b.party(), b.party()
	b.lab.mnt, err = b.lab.mountAt(ctx, "mnt", "host,size=1GiB", "sim:0,size=1GiB")
	return b, err
}

// openStore makes a store of its own with the devices of the rows.
func (b *lobby) openStore(ctx context.Context) error {
	log := zap.NewNop()
	specs := []string{"host,size=3GiB", "sim:0,size=3GiB", "sim:1,size=1GiB", "opencl:0,size=1GiB"}
	families := daemon.Families(host.Options{Dir: b.tier()}, log)
	b.later(b.closeDevices)
	for _, spec := range specs {
		dev, err := families.Open(ctx, spec)
		if err != nil {
			return err
		}
		b.devs = append(b.devs, dev)
	}
	kv, err := badgerkv.Open(ctx, badgerkv.Options{Dir: filepath.Join(b.lab.dir, "records"), Logger: log})
	if err != nil {
		return err
	}
	meta, err := metadata.Open(ctx, kv, metadata.Options{Logger: log})
	if err != nil {
		return errors.Join(err, kv.Close())
	}
	b.later(meta.Close)
	if b.engine, err = transport.New(transport.Options{}); err != nil {
		return err
	}
	b.later(b.engine.Close)
	if b.store, err = objects.Open(ctx, objects.Options{Meta: meta, Devices: b.devs, Engine: b.engine}); err != nil {
		return err
	}
	b.later(func() error { return b.store.Close(context.WithoutCancel(ctx), objects.CloseOptions{}) })
	return nil
}

// closeDevices ends the devices, and the host tier that the next run would find.
func (b *lobby) closeDevices() error {
	var errs []error
	for _, d := range b.devs {
		errs = append(errs, d.Close())
	}
	left, err := host.Leftover(host.Options{Dir: b.tier()})
	errs = append(errs, err)
	for _, l := range left {
		errs = append(errs, l.Remove())
	}
	return errors.Join(errs...)
}

// tier returns the directory at which the host tier is mounted.
func (b *lobby) tier() string { return filepath.Join(b.lab.dir, "tier") }

// device finds a device by its name.
func (b *lobby) device(name devices.Name) (devices.Device, error) {
	for _, d := range b.devs {
		if d.Info().Name == name {
			return d, nil
		}
	}
	return nil, fmt.Errorf("no device %s", name)
}

// party is one client in this process.
type party struct {
	lobby  *lobby
	client hetero.Client
}

func (b *lobby) party() *party {
	c := local.New(local.Options{Store: b.store})
	b.later(c.Close)
	return &party{lobby: b, client: c}
}

// registered is device memory.
type registered struct {
	mem    *devices.Memory
	device devices.Name
	id     hetero.MemoryID
}

// alloc takes memory on a device, fills it with bytes that differ from place to
// place, and registers it.
func (p *party) alloc(ctx context.Context, device devices.Name, n devices.Size) (registered, error) {
	dev, err := p.lobby.device(device)
	if err != nil {
		return registered{}, err
	}
	mem, err := dev.Alloc(ctx, n)
	if err != nil {
		return registered{}, err
	}
	p.lobby.later(mem.Release)
	content := make([]byte, n)
	if _, err = rand.Read(content); err != nil {
		return registered{}, err
	}
	if err = dev.CopyIn(ctx, mem.All(), content); err != nil {
		return registered{}, err
	}
	id, err := p.client.PreRegister(ctx, hetero.Memory{Device: device, Local: mem})
	return registered{mem: mem, device: device, id: id}, err
}

// blobs cuts the memory into n blobs of one size, from off on.
func (m registered) blobs(off devices.Offset, n int, size devices.Size) hetero.DeviceBlobList {
	l := hetero.DeviceBlobList{Device: m.device}
	for range n {
		l.Blobs = append(l.Blobs, hetero.Blob{Memory: m.id, Off: off, Size: size})
		off += devices.Offset(size)
	}
	return l
}

// runObjects measures the rows of keyed objects, and writes them where that is
// asked for.
func runObjects(ctx context.Context, o options, out, progress io.Writer) (err error) {
	b, err := newLobby(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return table(ctx, o, b, objectsBegin, out, progress)
}

// facts looks at the machine and its programs.
func (b *lobby) facts(ctx context.Context) *facts {
	f := &facts{loadBefore: load()}
	f.machine(ctx, b.opts.hmcfs)
	for _, d := range b.devs {
		if d.Info().Family == "opencl" {
			f.add("OpenCL device", d.Info().Model)
		}
	}
	f.add("Go", runtime.Version())
	f.last = fmt.Sprintf("- medians of %d rounds; both clients and the store are in one process, but where a session is named\n\n", b.opts.rounds)
	return f
}

// rows lists the rows of the table in order.
func (b *lobby) rows() []row {
	return slices.Concat(b.handOverRows(), b.sharedRows(), b.hostRows(), b.callRows())
}
