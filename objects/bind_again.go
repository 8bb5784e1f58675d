package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/objects/owner"
)

// errOfSession reports that an object was memory of a session of the previous run.
var errOfSession = fmt.Errorf("it was memory of a session of the daemon's previous run: %w", ErrLost)

// errAwaited reports that the owner of an object's memory is awaited.
var errAwaited = errors.New("its session may come back")

// errUnseen reports that a path could not be resolved to an object's memory without a
// request to its file system.
var errUnseen = errors.New("its path can't be resolved without a request to its file system")

// rebind binds the objects again that were bound when the previous daemon ended: the
// memory belongs to its owner, and lives as long as that process. If the owner has
// exited since, or has released the memory, the object is lost. It runs before the
// store is in use.
//
// Memory that is found without a request to a file system comes first, so that a file
// system that does not answer, for which a start waits a bounded time, costs no other
// object its memory.
func (bs *bindings) rebind(ctx context.Context) error {
	bound, err := bs.meta.Bindings(ctx)
	if err != nil {
		return fmt.Errorf("find bound objects: %w", err)
	}
	waited := userWaits{}
	for _, asking := range []bool{false, true} {
		var unseen []Ino
		for _, ino := range bound {
			err = bs.rebindInode(ctx, ino, asking, waited)
			switch {
			case errors.Is(err, errUnseen):
				unseen = append(unseen, ino)
			case err != nil:
				return err
			}
		}
		bound = unseen
	}
	return nil
}

// rebindInode binds one object again, or records that it is lost. asking permits
// requests to file systems for names.
//
// Errors: errUnseen, unless asking.
func (bs *bindings) rebindInode(ctx context.Context, ino Ino, asking bool, waited userWaits) error {
	in, err := bs.meta.Get(ctx, ino)
	if err != nil {
		return fmt.Errorf("find bound object %d: %w", ino, err)
	}
	t, err := bs.tiers.named(in.Device)
	if err != nil {
		return nil //nolint:nilerr // it is bound again when its device is mounted again
	}
	err = bs.rebindOne(ctx, t, in, asking, waited)
	if errors.Is(err, errUnseen) {
		return err
	}
	if errors.Is(err, errAwaited) {
		return nil
	}
	if err == nil {
		bs.log.Info("object bound again after a restart", zap.Uint64("ino", uint64(ino)))
		return nil
	}
	if uerr := bs.meta.Unbind(ctx, ino, true); uerr != nil {
		return fmt.Errorf("record that object %d is lost: %w", ino, uerr)
	}
	if errors.Is(err, errOfSession) {
		bs.keyed.expireLost(ctx, ino)
		return nil
	}
	bs.log.Warn("bound object lost", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	return nil
}

const (
	// startWait bounds the time for which a start waits for the files of one user.
	startWait = 30 * time.Second
	// ownTime is the share of one search that does not count as waiting.
	ownTime = 10 * time.Millisecond
)

// userWaits sums up, for each user, the time for which a start has waited for the
// user's files. A user can have any number of objects bound by paths that are now on a
// file system that does not answer.
type userWaits map[uint32]time.Duration

// look calls fn, which searches for memory of a user, unless the user's time is used
// up.
//
// Errors: ErrLost; those of fn.
func (w userWaits) look(uid uint32, fn func() error) error {
	if w[uid] >= startWait {
		return fmt.Errorf("file systems of user %d do not answer; skipped the search for the user's memory: %w", uid, ErrLost)
	}
	begun := time.Now()
	err := fn()
	w[uid] += max(0, time.Since(begun)-ownTime)
	if errors.Is(err, owner.ErrSilent) {
		w[uid] = startWait
	}
	return err
}

func (bs *bindings) rebindOne(ctx context.Context, t *content.Tier, in metadata.Inode, asking bool, waited userWaits) error {
	data, err := bs.meta.Binding(ctx, in.Ino)
	if errors.Is(err, metadata.ErrNoXattr) {
		return errOfSession
	}
	if err != nil {
		return err
	}
	if isSessionBinding(data) {
		return bs.expectOwner(t, in, data)
	}
	record := binding{}
	if err = json.Unmarshal(data, &record); err != nil {
		return fmt.Errorf("read the binding: %w", err)
	}
	if record.Version != bindingVersion {
		return fmt.Errorf("binding has version %d, this program supports %d: %w", record.Version, bindingVersion, metadata.ErrNewer)
	}
	if record.Session {
		return errOfSession
	}
	boot, err := owner.Boot()
	if err == nil && record.Boot != boot {
		err = fmt.Errorf("the machine has rebooted since: %w", ErrLost)
	}
	if err != nil {
		return err
	}
	op := &opener{bindings: bs, opened: opened{tier: t}, who: Caller{UID: record.UID}, memory: record.Memory, record: record, asking: asking}
	if err := waited.look(record.UID, func() error { return op.reopen(ctx) }); err != nil {
		return errors.Join(err, op.release())
	}
	b := op.opened
	if uint64(in.Size) != b.body.Length() {
		return errors.Join(fmt.Errorf("the memory has %d bytes, but the object has %d: %w", b.body.Length(), in.Size, ErrLost), b.release())
	}
	bs.table.adoptBound(in.Ino, t, b.body, facts{size: in.Size, atime: in.Atime, mtime: in.Mtime, ctime: in.Ctime})
	return bs.watch(in.Ino, b) //nolint:contextcheck // the watch lasts until the owner ends
}

// reopen opens the memory of a record again, which must be the same memory as before.
func (op *opener) reopen(ctx context.Context) (err error) {
	if id := op.record.Owner; id != nil {
		if op.owner, err = id.Find(); err != nil {
			return err
		}
	}
	op.begin()
	want := op.record.Files
	op.record.Files = nil
	if len(want) != len(op.memory.Pieces) {
		return fmt.Errorf("invalid binding: %d pieces, but %d files: %w", len(op.memory.Pieces), len(want), metadata.ErrCorrupt)
	}
	for i := range op.memory.Pieces {
		switch op.memory.Pieces[i].Kind {
		case devices.HandleMemfd:
			err = op.findFile(i, want[i])
		case devices.HandleVMM:
			err = op.findMemory(ctx, i, want[i])
		default:
			err = op.importPiece(ctx, i)
		}
		if err == nil && op.record.Files[i] != want[i] {
			err = fmt.Errorf("its file is now a different one: %w", ErrLost)
		}
		if err != nil {
			return fmt.Errorf("piece %d: %w", i, err)
		}
	}
	return nil
}

// findMemory opens device memory through a descriptor of its owner: the one with the
// recorded number or, failing that, the only one that refers to the same file. The
// number alone may refer to other memory by now.
func (op *opener) findMemory(ctx context.Context, i int, want owner.FileID) error {
	if op.owner == nil {
		return fmt.Errorf("no process is known to hold it: %w", ErrLost)
	}
	n := -1
	if fd := op.memory.Pieces[i].FD; fd != nil {
		n = *fd
	}
	f, err := op.owner.TakeAgain(op.bindings.guard, want, n, op.who.UID)
	if err != nil {
		return err
	}
	h := op.handleOf(i)
	h.File = f
	return op.importHandle(ctx, i, h)
}

// findFile opens the file of a piece: by its name if that is known to lead to it; else
// through any descriptor that its owner has of it; else by its name, whose file system
// may not answer.
//
// Errors: errUnseen instead of the last step, unless op.asking.
func (op *opener) findFile(i int, want owner.FileID) error {
	name := op.fileName(i)
	if name != "" && owner.Leads(name, want) {
		f, err := op.openSame(i, want)
		if err == nil {
			return op.addFile(i, f)
		}
		if errors.Is(err, owner.ErrSilent) {
			return err
		}
	}
	err := fmt.Errorf("no process is known to hold it: %w", ErrLost)
	if op.owner != nil {
		var f *os.File
		if f, err = op.owner.Search(op.bindings.guard, want, op.who.UID); err == nil {
			return op.addFile(i, f)
		}
	}
	if _, _, descriptor := owner.ParseDescriptor(name); descriptor || name == "" {
		return err // the kernel itself resolves such a name
	}
	if !op.asking {
		return errUnseen
	}
	f, err := op.openSame(i, want)
	if err != nil {
		return err
	}
	return op.addFile(i, f)
}

// openSame opens the file of a piece by its name, and fails if it is not the wanted
// one.
func (op *opener) openSame(i int, want owner.FileID) (*os.File, error) {
	f, err := op.openFile(i)
	if err != nil || isFile(f, want) {
		return f, err
	}
	return nil, errors.Join(f.Close(), fmt.Errorf("its file no longer exists: %w", ErrLost))
}

func isFile(f *os.File, want owner.FileID) bool {
	id, _, err := owner.Facts(f)
	return err == nil && id == want
}

// boundTo returns the description of a file's bound memory, in the text form of package
// share.
func (bs *bindings) boundTo(ctx context.Context, a Attr) ([]byte, error) {
	ino, data, err := a.Ino, []byte(nil), metadata.ErrNoXattr
	if a.State == StateBound {
		data, err = bs.meta.Binding(ctx, ino)
	}
	if err == nil && isSessionBinding(data) {
		err = metadata.ErrNoXattr
	}
	if err != nil {
		return nil, fmt.Errorf("attribute %s of inode %d: %w", XattrBind, ino, err)
	}
	var record binding
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, fmt.Errorf("attribute %s of inode %d: %w: %w", XattrBind, ino, metadata.ErrCorrupt, err)
	}
	return []byte(record.Memory.String()), nil
}
