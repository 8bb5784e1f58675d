package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	"github.com/hmcfs/hmcfs/tests/measure"
	"github.com/hmcfs/hmcfs/transport"
)

// lobby holds what the rows of keyed objects are measured with: a store in this process with
// two clients, and a mount with one client over its socket.
type lobby struct {
	measure.Undo

	opts   options
	lab    *lab // only its directory and its mount
	devs   []devices.Device
	engine *transport.Engine
	store  *objects.Store
	giver  *party
	taker  *party
}

// setUp opens the store and mounts.
func (b *lobby) setUp(ctx context.Context) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("mounting needs root")
	}
	if b.lab.dir, err = b.Folder(); err != nil {
		return err
	}
	b.Later(b.lab.Close)
	if err = b.openStore(ctx); err != nil {
		return err
	}
	b.giver, b.taker = b.party(), b.party()
	b.lab.mnt, err = b.lab.mountAt(ctx, "mnt", "host,size=1GiB", "sim:0,size=2GiB")
	return err
}

// openStore creates its own store with the devices of the rows.
func (b *lobby) openStore(ctx context.Context) error {
	log := zap.NewNop()
	specs := []string{"host,size=3GiB", "sim:0,size=3GiB", "sim:1,size=1GiB", "opencl:0,size=1GiB"}
	families := daemon.Families(host.Options{Dir: b.tier()}, log)
	b.Later(b.closeDevices)
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
	b.Later(meta.Close)
	if b.engine, err = transport.New(transport.Options{}); err != nil {
		return err
	}
	b.Later(b.engine.Close)
	if b.store, err = objects.Open(ctx, objects.Options{Meta: meta, Devices: b.devs, Engine: b.engine}); err != nil {
		return err
	}
	b.Later(func() error { return b.store.Close(context.WithoutCancel(ctx), objects.CloseOptions{}) })
	return nil
}

// closeDevices closes the devices, and removes the host tier, which the next run would find.
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
	b.Later(c.Close)
	return &party{lobby: b, client: c}
}

// registered is registered device memory.
type registered struct {
	mem    *devices.Memory
	device devices.Name
	id     hetero.MemoryID
}

// alloc allocates memory on a device, fills it with bytes that depend on their offset, and
// registers it.
func (p *party) alloc(ctx context.Context, device devices.Name, n devices.Size) (registered, error) {
	dev, err := p.lobby.device(device)
	if err != nil {
		return registered{}, err
	}
	mem, err := dev.Alloc(ctx, n)
	if err != nil {
		return registered{}, err
	}
	p.lobby.Later(mem.Release)
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

// blobs divides the memory into n blobs of one size, starting at off.
func (m registered) blobs(off devices.Offset, n int, size devices.Size) hetero.DeviceBlobList {
	l := hetero.DeviceBlobList{Device: m.device}
	for range n {
		l.Blobs = append(l.Blobs, hetero.Blob{Memory: m.id, Off: off, Size: size})
		off += devices.Offset(size)
	}
	return l
}

// facts collects facts about the machine and its programs.
func (b *lobby) facts(ctx context.Context) *facts {
	f := newFacts(ctx, b.opts)
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
	return slices.Concat(b.handOverRows(), b.sharedRows(), b.hostRows(), b.callRows(), (&beside{lobby: b}).rows())
}
