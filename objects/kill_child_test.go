package objects_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/devices/memfd"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/keep"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

const (
	// asWriter makes this program a process that changes files until it is killed.
	asWriter = "as-writer"

	killWorkers = 4
	killFiles   = 3 // of each worker
	killMax     = 300 << 10
)

// killStore is a store over records on disk and kept memory.
type killStore struct {
	store  *objects.Store
	meta   *metadata.Store
	engine *transport.Engine
	devs   []devices.Device
}

func openKillStore(ctx context.Context, dir string, keeper devices.DescriptorStore) (*killStore, error) {
	kv, err := badgerkv.Open(ctx, badgerkv.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	k := &killStore{}
	if k.meta, err = metadata.Open(ctx, kv, metadata.Options{KeepNameless: true}); err != nil {
		return nil, errors.Join(err, kv.Close())
	}
	if k.engine, err = transport.New(transport.Options{}); err != nil {
		return nil, err
	}
	for i := range 2 {
		k.devs = append(k.devs, sim.New(devices.Ordinal(i), small(i == 0)))
	}
	k.store, err = objects.Open(ctx, objects.Options{
		Meta: k.meta, Engine: k.engine, Devices: k.devs, Keeper: keeper,
		Arena: arena.Options{SlabSize: devices.MiB, Retain: 4 * devices.MiB},
	})
	return k, err
}

// killOp is one change of one file.
type killOp struct {
	kind        string
	file        int
	off, n      int
	id          uint64 // of the bytes
	keepsHandle bool
}

// killScript draws the operations of a worker: the same ones in both processes.
type killScript struct {
	rng *rand.Rand
	ids uint64
}

func newKillScript(seed uint64, worker int) *killScript {
	return &killScript{rng: rand.New(rand.NewPCG(seed, uint64(worker))), ids: seed + uint64(worker)<<32}
}

func (s *killScript) next() killOp {
	s.ids++
	op := killOp{file: s.rng.IntN(killFiles), off: s.rng.IntN(killMax), n: 1 + s.rng.IntN(60<<10), id: s.ids, keepsHandle: s.rng.IntN(4) > 0}
	if s.rng.IntN(3) == 0 {
		op.off &^= 4095
	}
	if s.rng.IntN(3) == 0 {
		op.n = (op.n + 4095) &^ 4095
	}
	kinds := []string{"write", "write", "write", "write", "cut", "punch", "draft", "remove", "move", "zero"}
	op.kind = kinds[s.rng.IntN(len(kinds))]
	return op
}

// killWorker changes its files as the script says.
type killWorker struct {
	*killStore
	number int
	roots  [2]objects.Ino
	device [killFiles]int
	open   [killFiles]*objects.File
}

func (w *killWorker) name(file int) string { return fmt.Sprintf("w%d-%d", w.number, file) }

// handle returns a handle of a file, which it makes if there is none.
func (w *killWorker) handle(ctx context.Context, file int) (*objects.File, error) {
	if w.open[file] != nil {
		return w.open[file], nil
	}
	root := w.roots[w.device[file]]
	a, err := w.store.Lookup(ctx, root, w.name(file))
	if errors.Is(err, metadata.ErrNotExist) {
		a, err = w.store.Create(ctx, root, w.name(file), metadata.Node{Mode: metadata.TypeRegular | 0o644})
	}
	if err != nil {
		return nil, err
	}
	w.open[file], err = w.store.OpenFile(ctx, a.Ino)
	return w.open[file], err
}

func (w *killWorker) close(ctx context.Context, file int) error {
	f := w.open[file]
	if f == nil {
		return nil
	}
	w.open[file] = nil
	return f.Close(ctx)
}

func (w *killWorker) do(ctx context.Context, op killOp) error {
	f, err := w.handle(ctx, op.file)
	if err != nil {
		return err
	}
	switch op.kind {
	case "write":
		_, err = f.WriteAt(ctx, kit.Bytes(op.id, 0, op.n), objects.Write{Off: uint64(op.off)})
	case "cut":
		to := uint64(op.off)
		_, err = w.store.SetAttr(ctx, f.Ino(), objects.Change{Size: &to})
	case "punch":
		err = f.Allocate(ctx, objects.AllocatePunch, uint64(op.off), uint64(op.n))
	case "zero":
		err = f.Allocate(ctx, objects.AllocateZero, uint64(op.off), uint64(op.n))
	case "draft":
		err = w.draft(ctx, f, op)
	case "remove":
		if err = w.store.Unlink(ctx, w.roots[w.device[op.file]], w.name(op.file)); err == nil {
			err = w.close(ctx, op.file)
		}
	case "move":
		if err = w.close(ctx, op.file); err == nil {
			err = w.move(ctx, op.file)
		}
	}
	if err == nil && !op.keepsHandle {
		err = w.close(ctx, op.file)
	}
	if err != nil {
		err = fmt.Errorf("%+v: %w", op, err)
	}
	return err
}

func (w *killWorker) draft(ctx context.Context, f *objects.File, op killOp) error {
	d, err := f.Draft(ctx, uint64(op.n))
	if err != nil {
		return err
	}
	if err = d.CopyIn(ctx, transport.HostSpan(kit.Bytes(op.id, 0, op.n)), 0); err != nil {
		d.Discard()
		return err
	}
	return d.Commit(ctx, false)
}

func (w *killWorker) move(ctx context.Context, file int) error {
	from := w.device[file]
	err := w.store.Rename(ctx, metadata.Rename{
		From: w.roots[from], Name: w.name(file), To: w.roots[1-from], NewName: w.name(file),
	})
	if err == nil {
		w.device[file] = 1 - from
	}
	return err
}

// runWriter is the process that is killed. Its arguments are the directory of the records
// and the seed; descriptor 3 leads to the keeper, 4 has two words for each worker: how many
// operations it has started, and finished.
func runWriter(args []string) error {
	ctx := context.Background()
	seed, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return err
	}
	keeper, err := keep.NewClient(os.NewFile(3, "keeper"))
	if err != nil {
		return err
	}
	progress, err := memfd.MapWords(os.NewFile(4, "progress"), 0, 2*killWorkers)
	if err != nil {
		return err
	}
	k, err := openKillStore(ctx, args[0], keeper)
	if err != nil {
		return err
	}
	var roots [2]objects.Ino
	for i := range roots {
		a, err := k.store.Lookup(ctx, metadata.RootIno, fmt.Sprint("sim", i))
		if err != nil {
			return err
		}
		roots[i] = a.Ino
	}
	var all sync.WaitGroup
	failed := make(chan error, killWorkers)
	for n := range killWorkers {
		w := &killWorker{killStore: k, number: n, roots: roots}
		all.Go(func() {
			script := newKillScript(seed, n)
			for done := uint64(0); ; done++ {
				progress.At(2 * n).Store(done + 1)
				if err := w.do(ctx, script.next()); err != nil {
					failed <- err
					return
				}
				progress.At(2*n + 1).Store(done + 1)
			}
		})
	}
	return <-failed
}
