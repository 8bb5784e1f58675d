package objects

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/objects/share"
)

// bindingVersion is the version of the binding record. A record of another version is
// not read: its object is lost.
const bindingVersion = 1

// binding is the record by which the memory of a bound object is found again.
type binding struct {
	Version int          `json:"version"`
	Memory  share.Memory `json:"memory"`
	// Boot identifies the boot of the machine: memory does not survive a reboot, and Files
	// means nothing after it.
	Boot string `json:"boot"`
	// Owner is the process whose exit ends the object; nil if the memory is a file and no
	// owner was named.
	Owner *owner.ID `json:"owner,omitempty"`
	// UID is the user that has bound it.
	UID uint32 `json:"uid"`
	// Files are the files of the pieces that are descriptors, in the pieces' order; zero
	// for all others. Those of device memory may all be the same file, if the vendor's
	// library makes descriptors by opening its own device.
	Files []owner.FileID `json:"files,omitempty"`
	// Session is set in records of earlier versions: the memory is registered memory of a holder,
	// which ends with the run.
	Session bool `json:"session,omitempty"`
}

// opened is a binding whose memory has been opened.
type opened struct {
	body *content.Bound
	// tier is the device to which the memory belongs.
	tier *content.Tier
	// owner is nil if none was named.
	owner *owner.Process
}

// release releases everything that was opened.
func (b opened) release() error {
	if b.body != nil {
		b.body.End()
	}
	return closeProcess(b.owner)
}

func closeProcess(p *owner.Process) error {
	if p == nil {
		return nil
	}
	return p.Close()
}

// openMemory checks a request and opens its memory. place determines the device to
// which the memory must belong. It takes ownership of the request's descriptors.
func (bs *bindings) openMemory(ctx context.Context, who Caller, r BindRequest, place func(*opener) error) (opened, binding, error) {
	op := &opener{bindings: bs, who: who, given: r.Handles, memory: r.Memory}
	op.record = binding{Version: bindingVersion, Memory: r.Memory, UID: who.UID}
	op.record.Memory.Pieces = slices.Clone(r.Memory.Pieces)
	err := op.check(r, place)
	if err == nil {
		op.record.Boot, err = owner.Boot()
	}
	if err == nil {
		err = op.findOwner()
	}
	if err == nil {
		err = op.open(ctx)
	}
	for i := range op.given { // those that no piece has taken over
		err = errors.Join(err, op.given[i].Close())
	}
	if err != nil {
		return opened{}, binding{}, errors.Join(err, op.release())
	}
	return op.opened, op.record, nil
}

// opener opens the memory of one binding.
type opener struct {
	bindings *bindings
	who      Caller
	given    []devices.Handle
	memory   share.Memory
	record   binding
	// asking permits reopen to ask file systems for names.
	asking bool

	opened
	// files are the files of body, ids their identities.
	files []*os.File
	ids   []owner.FileID
	// found has the index, in files, of what a name led to. Many pieces may name one file, and each opening by
	// name is a request to the guard.
	found map[string]int
}

// fileName returns the name by which the file of a piece was described: a path, or that of a descriptor of
// its owner; "" if the file was passed.
func (op *opener) fileName(i int) string {
	p := &op.memory.Pieces[i]
	if p.Path == "" && p.FD != nil {
		return owner.DescriptorPath(op.memory.PID, *p.FD)
	}
	return p.Path
}

// begin makes the content, without pieces. The tier must be known.
func (op *opener) begin() {
	op.found = map[string]int{}
	op.body = content.NewBound(op.bindings.engine, devices.Name(op.tier.Name), op.bindings.table.warn)
}

// check validates everything that can be checked without opening memory.
func (op *opener) check(r BindRequest, place func(*opener) error) error {
	if err := r.Memory.Validate(); err != nil {
		return err
	}
	if r.Handles != nil && len(r.Handles) != len(r.Memory.Pieces) {
		return fmt.Errorf("%d descriptors for %d pieces: %w", len(r.Handles), len(r.Memory.Pieces), devices.ErrHandle)
	}
	if err := place(op); err != nil {
		return err
	}
	if err := op.checkDevice(); err != nil {
		return err
	}
	return checkDescription(r.Memory)
}

// checkFile checks whether memory may become the content of a file.
func (op *opener) checkFile(ctx context.Context, ino Ino) error {
	a, err := op.bindings.attrs.get(ctx, ino)
	if err != nil {
		return err
	}
	switch {
	case !a.IsRegular():
		return fmt.Errorf("only a regular file can be bound: %w", ErrInvalid)
	case !op.who.May(&a.Inode, PermWrite):
		return fmt.Errorf("user %d may not write the file: %w", op.who.UID, ErrForbidden)
	case a.State == StateBound:
		return fmt.Errorf("the file is already bound; remove it to unbind: %w", ErrBusy)
	case a.Size > 0 || a.Allocated > 0:
		return fmt.Errorf("the file is not empty (%d bytes); bind an empty file: %w", a.Size, ErrBusy)
	}
	op.tier, err = op.bindings.tiers.named(a.Device)
	return err
}

// checkDevice checks whether the memory can belong to the directory's device.
func (op *opener) checkDevice() error {
	info, m := op.tier.Dev.Info(), &op.memory
	if m.Family != info.Family {
		return fmt.Errorf("memory of family %q can't be bound on %s, whose family is %q: %w", m.Family, info.Name, info.Family, devices.ErrHandle)
	}
	if err := info.CheckUUID(m.Device); err != nil {
		return err
	}
	hostLike := op.tier.Files != nil || info.Family == simFamily
	takes := fmt.Sprintf("%s and %s", devices.HandleIPC, devices.HandleVMM)
	if hostLike {
		takes = string(devices.HandleMemfd)
	}
	for i := range m.Pieces {
		kind := m.Pieces[i].Kind
		if kind == devices.HandleMemfd != hostLike {
			return fmt.Errorf("piece %d is of kind %s, but %s has family %q, which accepts %s: %w", i, kind, info.Name, info.Family, takes, devices.ErrHandle)
		}
		if kind != devices.HandleMemfd && m.PID == 0 {
			return fmt.Errorf(`memory of kind %s requires the "pid" of its owner: %w`, kind, devices.ErrHandle)
		}
	}
	return nil
}

// simFamily is the family whose device memory is host memory.
const simFamily devices.Family = "sim"

// checkDescription validates the description of the bytes.
func checkDescription(m share.Memory) error {
	size := uint64(m.Size)
	if m.Dtype != "" {
		if err := checkDtype(m.Dtype); err != nil {
			return err
		}
	}
	if m.Shape != "" {
		if err := checkShape(m.Shape, m.Dtype, size); err != nil {
			return err
		}
	}
	if m.Blobs == "" {
		return nil
	}
	if len(m.Blobs) > metadata.MaxXattr {
		return fmt.Errorf("text of the blobs has %d bytes, the maximum is %d: %w", len(m.Blobs), metadata.MaxXattr, ErrInvalid)
	}
	return checkBlobs(m.Blobs, size)
}

// findOwner finds the process that the request names as the owner.
func (op *opener) findOwner() error {
	if op.memory.PID == 0 {
		return nil
	}
	p, err := op.ownerOf(op.memory.PID)
	if err != nil {
		return err
	}
	op.owner = p
	id := p.ID()
	op.record.Owner = &id
	return nil
}

// ownerOf finds a process that has memory to bind: it must belong to the caller, and
// not be this process.
func (op *opener) ownerOf(pid int) (*owner.Process, error) {
	if pid == os.Getpid() {
		return nil, fmt.Errorf("process %d is the daemon of this mount, whose own memory can't be bound: %w", pid, devices.ErrHandle)
	}
	return op.who.process(pid)
}

// handleError maps errors of package owner to those of the store.
func handleError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, owner.ErrDenied):
		return fmt.Errorf("%w: %w", err, ErrForbidden)
	case errors.Is(err, owner.ErrSilent):
		return fmt.Errorf("%w: %w", err, ErrBusy)
	case errors.Is(err, owner.ErrGone), errors.Is(err, owner.ErrNotMemory):
		return fmt.Errorf("%w: %w", err, devices.ErrHandle)
	}
	return err
}

// open opens all pieces.
func (op *opener) open(ctx context.Context) error {
	op.begin()
	for i := range op.memory.Pieces {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := op.openPiece(ctx, i); err != nil {
			return fmt.Errorf("piece %d: %w", i, err)
		}
	}
	return nil
}

func (op *opener) openPiece(ctx context.Context, i int) error {
	if op.memory.Pieces[i].Kind != devices.HandleMemfd {
		return op.importPiece(ctx, i)
	}
	f, err := op.openFile(i)
	if err != nil {
		return handleError(err)
	}
	return op.addFile(i, f)
}

// ownFlags opens a file anew, so that it does not share a descriptor whose flags its
// owner may change. It takes ownership of f.
func ownFlags(f *os.File) (*os.File, error) {
	own, err := owner.Anew(f)
	if cerr := f.Close(); cerr != nil && own != nil {
		return nil, errors.Join(cerr, own.Close())
	}
	return own, err
}

// addFile adds a file, which it takes ownership of, as a part of the content. Pieces of
// one file share one descriptor.
func (op *opener) addFile(i int, f *os.File) error {
	p := &op.memory.Pieces[i]
	id, size, err := owner.Facts(f)
	if err == nil {
		err = owner.CheckWritable(f)
	}
	if err == nil && op.bindings.table.isOurs(id) {
		err = fmt.Errorf("it is memory of this mount, which can't be bound to itself: %w", devices.ErrHandle)
	}
	if need := uint64(p.Offset) + uint64(p.Size); err == nil && size < need {
		err = fmt.Errorf("%d bytes at offset %d exceed the file of %d: %w", p.Size, p.Offset, size, devices.ErrHandle)
	}
	if err != nil {
		return errors.Join(handleError(err), f.Close())
	}
	same := slices.Index(op.ids, id)
	if same >= 0 {
		err, f = f.Close(), op.files[same]
	} else if f, err = ownFlags(f); err != nil {
		return handleError(err)
	} else {
		same = len(op.files)
		op.files, op.ids = append(op.files, f), append(op.ids, id)
	}
	if name := op.fileName(i); name != "" && op.given == nil {
		op.found[name] = same
	}
	op.record.Files = append(op.record.Files, id)
	op.body.AddFile(f, uint64(p.Offset), uint64(p.Size))
	return err
}

// openFile opens the file of a piece as the request describes it.
func (op *opener) openFile(i int) (*os.File, error) {
	p := &op.memory.Pieces[i]
	if op.given != nil && op.given[i].File != nil {
		f := op.given[i].File
		op.given[i].File = nil
		// The numbers were indices into the list of descriptors passed.
		record := &op.record.Memory.Pieces[i]
		record.FD, record.Path = nil, ""
		return f, nil
	}
	if p.Path == "" && op.given != nil {
		return nil, fmt.Errorf("no descriptor was passed: %w", owner.ErrNotMemory)
	}
	if same, ok := op.found[op.fileName(i)]; ok {
		return owner.Duplicate(op.files[same])
	}
	if p.Path == "" {
		return op.descriptor(op.memory.PID, *p.FD)
	}
	if pid, n, ok := owner.ParseDescriptor(p.Path); ok {
		return op.descriptor(pid, n)
	}
	return op.bindings.guard.Open(p.Path, op.who.UID)
}

// descriptor opens descriptor n of a process; pid 0 means the caller.
func (op *opener) descriptor(pid, n int) (*os.File, error) {
	if pid == 0 {
		pid = owner.Leader(op.who.PID)
	}
	p, err := op.ownerOf(pid)
	if err != nil {
		return nil, err
	}
	f, err := p.Descriptor(op.bindings.guard, n, op.who.UID)
	if err = errors.Join(err, p.Close()); err != nil {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		return nil, err
	}
	return f, nil
}

// importPiece opens the memory of a piece through the device's library.
func (op *opener) importPiece(ctx context.Context, i int) error {
	h := op.handleOf(i)
	if err := op.fillHandle(&h, i); err != nil {
		return err
	}
	return op.importHandle(ctx, i, h)
}

// handleOf returns a piece's handle, without bytes and descriptor.
func (op *opener) handleOf(i int) devices.Handle {
	p := &op.memory.Pieces[i]
	return devices.Handle{Kind: p.Kind, Device: op.memory.Device, Offset: p.Offset, Size: p.Size, Allocation: p.Allocation}
}

// importHandle adds the memory of a handle, which it takes ownership of, as a part of
// the content.
func (op *opener) importHandle(ctx context.Context, i int, h devices.Handle) error {
	p := &op.memory.Pieces[i]
	var id owner.FileID
	var err error
	if h.File != nil {
		id, err = owner.Identity(h.File)
	}
	var mem *devices.Memory
	if err == nil {
		mem, err = devices.Import(ctx, op.tier.Dev, h)
	}
	if cerr := h.Close(); cerr != nil {
		err = errors.Join(err, cerr)
	}
	if mem != nil && mem.Size() < p.Size {
		err = errors.Join(err, fmt.Errorf("%d bytes requested, but the memory has %d: %w", p.Size, mem.Size(), devices.ErrHandle))
	}
	if err != nil {
		if mem != nil {
			err = errors.Join(err, mem.Release())
		}
		return err
	}
	op.record.Files = append(op.record.Files, id)
	op.body.AddMemory(mem, uint64(p.Size))
	return nil
}

// fillHandle puts the bytes or the descriptor into a handle, which then owns it.
func (op *opener) fillHandle(h *devices.Handle, i int) (err error) {
	p := &op.memory.Pieces[i]
	switch {
	case p.Kind == devices.HandleIPC:
		h.Bytes, err = hex.DecodeString(p.Handle)
	case op.given != nil:
		h.File, op.given[i].File = op.given[i].File, nil
		op.record.Memory.Pieces[i].FD = nil // the number was an index into the list of descriptors passed
	case p.FD != nil:
		h.File, err = op.owner.Take(op.bindings.guard, *p.FD, op.who.UID)
	}
	if err == nil && p.Kind != devices.HandleIPC && h.File == nil {
		err = fmt.Errorf("a handle of kind %s must be passed as a descriptor: %w", p.Kind, devices.ErrHandle)
	}
	return handleError(err)
}
