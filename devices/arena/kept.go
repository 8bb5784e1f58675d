package arena

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/memfd"
)

// Label says what pages of a lease hold.
type Label struct {
	// Owner is a number that the holder of the lease chooses; never 0.
	Owner uint64
	// Off is the offset of the first page in the owner's content, a multiple of the page
	// size below 2^63.
	Off uint64
	// Written is the number of bytes, from the first, that are data.
	Written uint64
}

// Found is a range of pages with one label, in a slab of an earlier process.
type Found struct {
	Label
	Slab  SlabID
	Range devices.Range
}

// Restored reports what Restore found, in bytes.
type Restored struct {
	Slabs int
	// Leased belongs to accepted owners; Freed had a label that was not accepted.
	Leased, Freed devices.Size
}

// Label records what the pages of a lease hold, for the process after this one. kept is
// false, and nothing is recorded, if these pages end with this process.
//
// Preconditions: the caller holds the lease, and no other call labels its pages.
func (a *Arena) Label(l Lease, of Label) (kept bool) {
	at, ok := a.labelled(l)
	if ok {
		at.slab.labels.set(at.page, at.n, of)
	}
	return ok
}

// Unlabel records that the pages of a lease hold nothing. It precedes Free by as long as
// readers may use the memory.
func (a *Arena) Unlabel(l Lease) {
	if at, ok := a.labelled(l); ok {
		at.slab.labels.clear(at.page, at.n)
	}
}

// LabelOf returns the label of the pages of a lease; ok is false if they have several, or
// none.
func (a *Arena) LabelOf(l Lease) (of Label, ok bool) {
	at, ok := a.labelled(l)
	if !ok {
		return Label{}, false
	}
	of, n := at.slab.labels.run(at.page, at.page+at.n)
	return of, n == at.n && of.Owner != 0
}

func (a *Arena) labelled(l Lease) (at spot, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, err := a.locate(l.Slab, l.Span.Range)
	return at, err == nil && at.slab.labels != nil && at.slab.mem == l.Span.Mem
}

// AllKept begins the names of everything that is kept of the memory of devices.
const AllKept = "mem/"

// KeptPrefix begins the names of everything that is kept of a device's memory.
func KeptPrefix(device devices.Name) string { return AllKept + string(device) + "/" }

// KeptOf returns the device of which something is kept under a name, and the size of its memory; 0 for what is no memory.
func KeptOf(name string) (device devices.Name, size devices.Size) {
	first, _, _ := strings.Cut(strings.TrimPrefix(name, AllKept), "/")
	device = devices.Name(first)
	s, _ := readSlabName(device, name)
	return device, s.size
}

// slabName returns the name under which the file of a slab is kept.
func (a *Arena) slabName(epoch devices.Epoch, id SlabID, size devices.Size) string {
	return fmt.Sprintf("%s%d/%d/%d", KeptPrefix(a.info.Name), epoch, id, size)
}

// readSlabName is the inverse of slabName.
func readSlabName(device devices.Name, name string) (s keptSlab, ok bool) {
	rest, found := strings.CutPrefix(name, KeptPrefix(device))
	parts := strings.Split(rest, "/")
	if !found || len(parts) != 3 {
		return keptSlab{}, false
	}
	var numbers [3]uint64
	for i, p := range parts {
		var err error
		if numbers[i], err = strconv.ParseUint(p, 10, 63); err != nil {
			return keptSlab{}, false
		}
	}
	return keptSlab{epoch: devices.Epoch(numbers[0]), id: SlabID(numbers[1]), size: devices.Size(numbers[2]), name: name}, true
}

// allocSlab allocates the memory of a slab: in a file that is kept, if the arena keeps its
// slabs. If it can't be kept, the memory is allocated all the same, and ends with the
// process.
func (a *Arena) allocSlab(ctx context.Context, id SlabID, size devices.Size) (*slab, error) {
	if a.opts.Keeper != nil {
		s, err := a.allocKept(ctx, id, size)
		if err == nil || a.opts.Unkept == nil {
			return s, err
		}
		if failed, is := errors.AsType[*keepError](err); is {
			a.opts.Unkept(failed)
		} else {
			return nil, err
		}
	}
	mem, err := a.dev.Alloc(ctx, size)
	if err != nil {
		return nil, err
	}
	return &slab{mem: mem, size: size}, nil
}

// keepError is a failure to keep a slab, apart from one to allocate it.
type keepError struct{ err error }

func (e *keepError) Error() string { return e.err.Error() }
func (e *keepError) Unwrap() error { return e.err }

func (a *Arena) allocKept(ctx context.Context, id SlabID, size devices.Size) (_ *slab, err error) {
	f, err := a.newFiles(ctx, size)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	s, err := a.slabIn(ctx, f, size)
	if err != nil {
		if errors.Is(err, devices.ErrHandle) { // of what the device itself has just made
			err = &keepError{err}
		}
		return nil, err
	}
	s.name = a.slabName(s.mem.Epoch(), id, size)
	if err = a.keep(s.name, f); err != nil {
		err = &keepError{fmt.Errorf("keep a slab of %v: %w", size, err)}
		return nil, errors.Join(err, s.labels.close(), s.mem.Release())
	}
	return s, nil
}

// slabIn makes a slab of the first size bytes of its files.
func (a *Arena) slabIn(ctx context.Context, f slabFiles, size devices.Size) (*slab, error) {
	lasting, ok := devices.LastingOf(a.dev)
	if !ok {
		return nil, fmt.Errorf("memory of %s behind a descriptor: %w", a.info.Name, devices.ErrUnsupported)
	}
	mem, err := lasting.AllocIn(ctx, f.memory, size)
	if err != nil {
		return nil, err
	}
	l, err := mapLabels(f.labels, a.labelStart(size), size, a.opts.PageSize)
	if err != nil {
		return nil, errors.Join(&keepError{err}, mem.Release())
	}
	return &slab{mem: mem, size: size, labels: l}, nil
}

// release returns the memory of a slab that has left the arena.
func (a *Arena) release(s *slab) error {
	var errs []error
	if s.labels != nil {
		if !a.leaves {
			errs = append(errs, a.drop(s.name))
		}
		errs = append(errs, s.labels.close())
	}
	return errors.Join(append(errs, s.mem.Release())...)
}

// Restore continues with the slabs that an earlier process kept in the device's present
// epoch, from their files by name. accept is called for the labelled ranges, and says
// whether their owner still exists; all other pages are free. A slab without leases is not
// continued: the next Trim frees it. Files that are none of these slabs are ignored: the
// caller drops them, and closes all of them.
//
// Preconditions: the arena has not been used.
//
// Errors: ErrNoSlab for a file that is no slab, or not of this device, and errors of mapping and
// of the device; the arena must then be closed, and not used.
func (a *Arena) Restore(ctx context.Context, files map[string]*os.File, accept func(Found) bool) (Restored, error) {
	a.turn <- struct{}{}
	defer func() { <-a.turn }()
	var sum Restored
	a.mu.Lock()
	err := a.ready() // the device may be in an earlier epoch than when the arena was made
	a.mu.Unlock()
	if err != nil {
		return sum, err
	}
	for _, s := range a.keptSlabs(files) {
		fresh, err := a.reopen(ctx, s, files)
		if err != nil {
			return sum, fmt.Errorf("kept slab %d of %s: %w", s.id, a.info.Name, err)
		}
		a.restore(s.id, fresh, accept, &sum)
	}
	return sum, nil
}

// reopen makes a slab of the files of an earlier process.
func (a *Arena) reopen(ctx context.Context, s keptSlab, files map[string]*os.File) (*slab, error) {
	f := a.filesOf(s.name, files)
	if f.labels == nil {
		return nil, fmt.Errorf("its labels are missing: %w", ErrNoSlab)
	}
	if err := memfd.Check(f.labels, a.fileBytes(s.size)); err != nil {
		return nil, errors.Join(ErrNoSlab, err)
	}
	fresh, err := a.slabIn(ctx, f, s.size)
	if err != nil {
		if errors.Is(err, devices.ErrHandle) {
			err = errors.Join(ErrNoSlab, err)
		}
		return nil, err
	}
	fresh.name = s.name
	return fresh, nil
}

// Has reports whether a file is that of a slab in use, by its name.
func (a *Arena) Has(name string) bool {
	name = strings.TrimSuffix(name, labelsSuffix)
	s, ok := readSlabName(a.info.Name, name)
	a.mu.Lock()
	defer a.mu.Unlock()
	return ok && a.slabs[s.id] != nil && a.slabs[s.id].name == name
}

// keptSlab describes a slab of an earlier process, by the name of its file.
type keptSlab struct {
	epoch devices.Epoch
	id    SlabID
	size  devices.Size
	name  string
}

// keptSlabs returns the slabs of the present epoch among the files, by ID.
func (a *Arena) keptSlabs(files map[string]*os.File) []keptSlab {
	var found []keptSlab
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s, ok := readSlabName(a.info.Name, name)
		if !ok || s.epoch != a.dev.Epoch() || s.id == 0 || s.size == 0 || s.size > a.largest || s.size%a.opts.PageSize != 0 {
			continue
		}
		found = append(found, s)
	}
	slices.SortFunc(found, func(x, y keptSlab) int { return cmp.Compare(x.id, y.id) })
	return slices.CompactFunc(found, func(x, y keptSlab) bool { return x.id == y.id })
}

// restore adds a slab, with the leases that its labels describe.
func (a *Arena) restore(id SlabID, s *slab, accept func(Found) bool, sum *Restored) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held += s.size
	a.nextID = id
	a.add(s)
	for page, end := uint32(0), s.pages.pages; page < end; {
		of, n := s.labels.run(page, end)
		at := devices.Range{Off: devices.Offset(a.toBytes(page)), Len: a.toBytes(n)}
		switch {
		case of.Owner == 0:
		case accept(Found{Label: of, Slab: id, Range: at}):
			a.take(s, page, n)
			sum.Leased += at.Len
		default:
			s.labels.clear(page, n)
			sum.Freed += at.Len
		}
		page += n
	}
	if s.whollyFree() {
		a.detach(s)
		return
	}
	sum.Slabs++
}
