package filecollect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// rig is a store of simulated devices.
type rig struct {
	t      *testing.T
	store  *objects.Store
	engine *transport.Engine
}

func newRig(t *testing.T, params ...sim.Params) *rig {
	t.Helper()
	kit.Check(t)
	r := &rig{t: t}
	meta, err := metadata.Open(t.Context(), memkv.New(), metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.engine, err = transport.New(transport.Options{}); err != nil {
		t.Fatal(err)
	}
	var devs []devices.Device
	for i, p := range params {
		devs = append(devs, sim.New(devices.Ordinal(i), p))
	}
	r.store, err = objects.Open(t.Context(), objects.Options{
		Meta: meta, Engine: r.engine, Devices: devs, DirMode: 0o777,
		Arena: arena.Options{SlabSize: devices.MiB, Retain: devices.MiB},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		errs := []error{r.store.Close(context.Background(), objects.CloseOptions{}), r.engine.Close()}
		for _, d := range devs {
			if u, err := d.Usage(); err != nil || u.Used != 0 {
				t.Errorf("%v in use at the end, %v", u.Used, err)
			}
			errs = append(errs, d.Close())
		}
		if err := errors.Join(append(errs, meta.Close())...); err != nil {
			t.Error(err)
		}
	})
	return r
}

// file creates a file with content, which stays open until the end of the test.
func (r *rig) file(device, name string, content []byte) *objects.File {
	r.t.Helper()
	ctx := r.t.Context()
	dir, err := r.store.Lookup(ctx, metadata.RootIno, device)
	if err != nil {
		r.t.Fatal(err)
	}
	a, err := r.store.Create(ctx, dir.Ino, name, metadata.Node{Mode: metadata.TypeRegular | 0o644})
	if err != nil {
		r.t.Fatal(err)
	}
	f, err := r.store.OpenFile(ctx, a.Ino)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	if n, err := f.WriteAt(ctx, content, objects.Write{}); err != nil || n != len(content) {
		r.t.Fatalf("write %d bytes: %d, %v", len(content), n, err)
	}
	return f
}

func (r *rig) content(f *objects.File) []byte {
	r.t.Helper()
	p := make([]byte, f.Size())
	if n, err := f.ReadAt(r.t.Context(), p, 0); err != nil || n != len(p) {
		r.t.Fatalf("read %d bytes: %d, %v", len(p), n, err)
	}
	return p
}

// TestJob runs collectives in place, on one device and on two.
func TestJob(t *testing.T) {
	r := newRig(t, sim.Params{Size: 256 * devices.MiB}, sim.Params{Size: 256 * devices.MiB, Mapped: true})
	for _, c := range []struct {
		devs []string
		path string
	}{
		{[]string{"sim0", "sim0", "sim0"}, "device"},
		{[]string{"sim1", "sim1", "sim1"}, "local"},
		{[]string{"sim0", "sim1", "sim0"}, "local"},
	} {
		for _, kind := range allKinds() {
			for _, count := range []uint64{0, 1, 3, 4_300_001} {
				task := Task{Kind: kind, Type: elem.Int32, Ranks: 3, Size: 4 * count, Root: 1}
				path := "local"
				if kind.Combines() {
					task.Op, path = elem.Avg, c.path
				}
				r.jobOnce(task, c.devs, path)
			}
		}
	}
}

// jobOnce runs a task on files of devices, and removes their bytes.
func (r *rig) jobOnce(task Task, devs []string, path string) {
	t := r.t
	t.Helper()
	sources := sourcesOf(task)
	var places []Place
	for rank, device := range devs {
		f := r.file(device, fmt.Sprintf("%v-%v-%d-%d", devs, task.Kind, task.Size, rank), sources[rank])
		p := Place{Rank: rank, Source: f}
		if task.HasResult(rank) {
			p.Target = f
		}
		places = append(places, p)
	}
	j, err := r.prepare(task, places)
	if err != nil {
		t.Fatal(err)
	}
	report, err := j.RunRanks(t.Context(), region.NewTable(r.engine), nil, "")
	if err != nil || report.Path != path {
		t.Fatalf("%v on %v: by %q, want %q: %v", task.Kind, devs, report.Path, path, err)
	}
	for rank := range places {
		if !bytes.Equal(r.content(places[rank].Source), sources[rank]) {
			t.Fatalf("%v on %v: rank %d has changed before it is committed", task.Kind, devs, rank)
		}
	}
	if err = j.Commit(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for rank, want := range reference(t, task, sources) {
		if f := places[rank].Target; f != nil && !bytes.Equal(r.content(f), want) {
			t.Errorf("%v on %v: rank %d has other bytes than it should", task.Kind, devs, rank)
		}
		if _, err := r.store.SetAttr(t.Context(), places[rank].Source.Ino(), objects.Change{Size: new(uint64)}); err != nil {
			t.Fatal(err)
		}
	}
}

// prepare calls Turn and Prepare.
func (r *rig) prepare(task Task, places []Place) (*Job, error) {
	done, err := Turn(r.t.Context(), r.store, places)
	if err != nil {
		return nil, err
	}
	return Prepare(r.t.Context(), task, places, done)
}

// TestJobFails: an invalid task leaves the files unchanged.
func TestJobFails(t *testing.T) {
	r := newRig(t, sim.Params{Size: 16 * devices.MiB}, sim.Params{Size: 64 * devices.MiB})
	const size = 10 << 20
	sources := [][]byte{kit.Bytes(1, 0, size), kit.Bytes(2, 0, size)}
	a, b := r.file("sim0", "a", sources[0]), r.file("sim1", "b", sources[1])
	short := r.file("sim1", "short", sources[1][:100])
	task := Task{Kind: plan.AllReduce, Type: elem.Uint8, Op: elem.Sum, Ranks: 2, Size: size}
	refused := func(err, want error, rank int) {
		t.Helper()
		var named *RankError
		if !errors.Is(err, want) || !errors.As(err, &named) || named.Rank != rank {
			t.Errorf("%v, want %v of rank %d", err, want, rank)
		}
		if !bytes.Equal(r.content(a), sources[0]) || !bytes.Equal(r.content(b), sources[1]) {
			t.Fatal("a file has changed")
		}
	}
	_, err := r.prepare(task, []Place{{Rank: 0, Source: a, Target: b}, {Rank: 1, Source: short, Target: short}})
	refused(err, ErrTask, 1)
	_, err = r.prepare(task, []Place{{Rank: 0, Source: b, Target: b}, {Rank: 1, Source: a, Target: a}})
	refused(err, devices.ErrOutOfMemory, 1)
	j, err := r.prepare(task, []Place{{Rank: 0, Source: a, Target: b}, {Rank: 1, Source: b}})
	if err != nil {
		t.Fatal(err)
	}
	if err = j.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	// The source is changed in the meantime.
	sources[1][77]++
	if _, err = b.WriteAt(t.Context(), sources[1][77:78], objects.Write{Off: 77}); err != nil {
		t.Fatal(err)
	}
	refused(j.Commit(t.Context(), false), objects.ErrBusy, 0)
}

// TestPanicGivesTheTurnBack: a panic releases the turn, since others wait for the files.
func TestPanicGivesTheTurnBack(t *testing.T) {
	given := 0
	err := Contained(func() error {
		task := Task{Kind: plan.AllReduce, Type: elem.Uint8, Op: elem.Sum, Ranks: 1, Size: 8}
		_, err := Prepare(t.Context(), task, []Place{{Source: new(objects.File)}}, func() { given++ })
		return err
	})
	if _, panicked := errors.AsType[*PanicError](err); !panicked || given != 1 {
		t.Errorf("%v, given back %d times", err, given)
	}
}
