package fs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// The names of what a keeper has of a mount.
const (
	heldPrefix = "mount/"
	heldDevice = heldPrefix + "device"
	heldTable  = heldPrefix + "state"
)

// ErrNotResumable reports that a mount that was kept can't be continued.
var ErrNotResumable = errors.New("fs: the mount can't be continued")

// IsHeld reports whether a keeper has a mount, which Mount then continues.
func IsHeld(k devices.DescriptorStore) (bool, error) {
	kept, err := k.Kept(heldPrefix)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, f := range kept {
		errs = append(errs, f.Close())
	}
	return kept[heldDevice] != nil && kept[heldTable] != nil, errors.Join(errs...)
}

// DropHeld ends the mount that a keeper has, for programs that still wait for it.
func DropHeld(k devices.DescriptorStore) error {
	return errors.Join(k.Drop(heldDevice), k.Drop(heldTable))
}

// holding is a filesystem whose open files and directories are recorded for the process that
// follows this one.
type holding struct {
	*filesystem
	state *heldState
	// later is true until the connection to the kernel is in place.
	later bool
	// found are the inodes of files that were open when an earlier process died.
	found []metadata.Ino
}

// Init implements fuse.RawFileSystem.
func (h *holding) Init(server *fuse.Server) {
	if !h.later {
		h.filesystem.Init(server)
	}
}

// hold records a new mount with the keeper.
func (s *Server) hold(o *Options, h *holding, before []int) error {
	fd, err := newDevice(before)
	if err != nil {
		return err
	}
	copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate the descriptor of the mount: %w", err)
	}
	s.device = fd
	device := os.NewFile(uintptr(copied), "/dev/fuse")
	defer func() { _ = device.Close() }()
	init := s.fuse.KernelSettings()
	if init.Flags64()&fuse.CAP_HAS_RESEND == 0 {
		return errors.New("this kernel does not repeat requests, which a mount that outlives its daemon requires: use Linux 6.9 or newer, or mount with --no-hold")
	}
	init.Length, init.Opcode, init.Unique = initLength, opInit, 1
	// What go-fuse answered can't be asked for: another server answers the same. Its descriptor is
	// closed when it is collected.
	with, err := handshake(fuse.NewDefaultRawFileSystem(), init, fuseOptions(o, s.fs))
	if err != nil {
		return err
	}
	if h.state, err = newHeldState(init, with.flags, uint64(o.MaxWrite)); err != nil {
		return err
	}
	keepIn(h.filesystem, h.state)
	if err = o.Keeper.Keep(heldTable, h.state.file); err != nil {
		return err
	}
	return o.Keeper.Keep(heldDevice, device)
}

// keepIn records in a state what the next process must know, and takes over what is there.
func keepIn(f *filesystem, state *heldState) {
	f.otherKeys.held, f.published.held = state, state
	f.asked.keepIn(state.asked)
	f.fleeting.adopt(state)
}

// CanResume returns why this kernel can't have another daemon continue a mount; nil if it can.
func CanResume() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("ask for the release of the kernel: %w", err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("read the release of the kernel, %q: %w", release, err)
	}
	if major < 6 || major == 6 && minor < 9 {
		return fmt.Errorf("the kernel %s does not repeat requests, as Linux 6.9 and newer do", release)
	}
	return nil
}

const (
	// opInit is the number of the kernel's first message.
	opInit = 26
	// resent is set in the number of a request that the kernel sends again.
	resent = 1 << 63
)

// devicesOfFUSE returns the descriptors of this process that are of /dev/fuse.
func devicesOfFUSE() ([]int, error) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("find the descriptor of the mount: %w", err)
	}
	var found []int
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && target == "/dev/fuse" {
			found = append(found, fd)
		}
	}
	return found, nil
}

// newDevice returns the descriptor of /dev/fuse that was not there before.
func newDevice(before []int) (int, error) {
	now, err := devicesOfFUSE()
	if err != nil {
		return 0, err
	}
	now = slices.DeleteFunc(now, func(fd int) bool { return slices.Contains(before, fd) })
	if len(now) != 1 {
		return 0, fmt.Errorf("find the descriptor of the mount: this process has %d new ones of /dev/fuse", len(now))
	}
	return now[0], nil
}

// resume continues the mount that the keeper has.
func (s *Server) resume(ctx context.Context, o *Options, h *holding) error {
	kept, err := o.Keeper.Kept(heldPrefix)
	if err != nil {
		return err
	}
	device, table := kept[heldDevice], kept[heldTable]
	if device == nil || table == nil {
		for _, f := range kept {
			err = errors.Join(err, f.Close())
		}
		return errors.Join(fmt.Errorf("%w: it is not kept", ErrNotResumable), err)
	}
	defer func() { _ = device.Close() }()
	if h.state, err = openHeldState(table); err != nil {
		return fmt.Errorf("%w: %w", ErrNotResumable, err)
	}
	o.MaxWrite = devices.Size(h.state.header.maxWrite)
	s.fs.request, s.fs.opts.MaxWrite = int(o.MaxWrite), o.MaxWrite
	h.later = true
	with, err := handshake(h, &h.state.header.init, fuseOptions(o, s.fs))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotResumable, err)
	}
	s.fuse, s.device = with.server, with.fd
	if with.flags != h.state.header.flags {
		return fmt.Errorf("%w: it was made with the protocol flags %#x, and this hmcfs uses %#x", ErrNotResumable,
			h.state.header.flags, with.flags)
	}
	if err = unix.Dup3(int(device.Fd()), with.fd, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("continue the mount: %w", err)
	}
	h.later = false
	s.fs.Init(with.server) //nolint:contextcheck // as go-fuse calls it
	h.restore(ctx)
	// Names that the process changed for others just before it died are still cached. Before Linux 6.16, they
	// are until they expire.
	if _, err = device.Write(notification(notifyEpoch)); err != nil {
		s.fs.log.Debug("can't have the kernel look names up again", zap.Error(err))
	}
	if _, err = device.Write(notification(notifyResend)); err != nil {
		return fmt.Errorf("have the kernel repeat its requests, which requires Linux 6.9 or newer: %w", err)
	}
	s.fs.tree.OpenLater()
	return nil
}

// dropPages drops what the kernel caches of files that were open: others may have changed them
// just before the earlier process died. It must not be called before requests are served.
func (h *holding) dropPages() {
	for _, ino := range h.found {
		h.kernel.InvalidatePages(ino)
		if m := h.mappable.of(ino); m != nil {
			m.adopt(false)
		}
	}
	h.found = nil
}

// restore opens what was open. Of what can't be opened any more, requests are EBADF. Files and
// directories of other nodes are opened when the mount serves again, so that a node that does not
// answer does not delay that.
func (h *holding) restore(ctx context.Context) {
	f, state := h.filesystem, h.state
	f.fleeting.continued = true
	keepIn(f, state)
	f.files.last.Store(state.header.last)
	f.dirs.last.Store(state.header.last)
	all := state.all()
	h.adoptBackings(all)
	lost, links := 0, 0
	for i := range all {
		slot := &all[i]
		if slot.kind == heldLink {
			_, key, _ := state.shows(slot)
			f.otherKeys.adopt(metadata.Ino(slot.id), otherKey{key: key, refs: slot.unique})
			links++
			continue
		}
		if status := h.reopen(ctx, slot); status != fuse.OK {
			f.log.Warn("a file that was open could not be opened again", zap.Uint64("ino", slot.ino), zap.Stringer("status", status))
			state.remove(slot.id, slot.kind)
			lost++
		}
	}
	f.backings.dropUnused()
	if f.backings.kernel != nil {
		f.backings.dropLost(state.removed())
	}
	f.log.Info("continued the mount of a daemon that has died", zap.Int("open", len(all)-lost-links))
}

// adoptBackings has files served in the way in which the kernel has them open, since it does not allow a mix.
func (h *holding) adoptBackings(all []heldSlot) {
	for _, through := range []bool{true, false} { // an inode that is open in both ways has a number
		for i := range all {
			if slot := &all[i]; slot.kind == heldFile && slot.openFlags&fuse.FOPEN_PASSTHROUGH != 0 == through {
				h.backings.adopt(metadata.Ino(slot.ino), slot.backing)
			}
		}
	}
}

// reopen opens a file or directory as the number that the kernel knows.
func (h *holding) reopen(ctx context.Context, slot *heldSlot) fuse.Status {
	f := h.filesystem
	if cluster.OfAnotherNode(metadata.Ino(slot.ino)) {
		return h.reopenOther(slot) //nolint:contextcheck // the files are opened later
	}
	// The permissions were checked when it was opened.
	header := fuse.InHeader{NodeId: slot.ino, Caller: fuse.Caller{Pid: uint32(os.Getpid())}}
	var out fuse.OpenOut
	if isView(metadata.Ino(slot.ino)) {
		if err := h.showAgain(ctx, slot); err != nil {
			return f.errs.status(err)
		}
	}
	if slot.reading != 0 {
		return h.readOn(ctx, slot)
	}
	switch slot.kind {
	case heldDir:
		d, err := f.newDirHandle(ctx.Done(), &header, metadata.Ino(slot.ino)) //nolint:contextcheck // as go-fuse calls it
		if err != nil {
			return f.errs.inodeStatus(err)
		}
		f.dirs.set(slot.id, d)
		return fuse.OK
	case heldFile:
		in := fuse.OpenIn{InHeader: header, Flags: slot.flags &^ unix.O_TRUNC}
		var status fuse.Status
		if n := f.provided(metadata.Ino(slot.ino)); n != nil {
			by := fuse.Caller{Owner: fuse.Owner{Uid: slot.uid, Gid: slot.gid}, Pid: slot.pid}
			status = n.open(&by, in.Flags, &out)
		} else {
			status = f.open(ctx.Done(), &in, &out) //nolint:contextcheck // as go-fuse calls it
		}
		if status != fuse.OK {
			return status
		}
		h.adopt(slot, out.Fh)
		return fuse.OK
	case heldLink: // is not opened
	}
	return fuse.EBADF
}

// adopt gives a file that has just been opened, as a handle fh, the number that the kernel knows.
func (h *holding) adopt(slot *heldSlot, fh uint64) {
	f := h.filesystem
	file, _ := f.files.take(fh)
	if file.open != nil && file.view == nil && !file.paged.Swap(true) {
		f.shared.mapped(file.open.Ino()) // perhaps, and then its pages must be dropped when it changes
	}
	if file.mapped != nil {
		file.mapped.adopt(true)
	}
	h.found = append(h.found, metadata.Ino(slot.ino))
	f.files.set(slot.id, file)
}

// reopenOther is reopen for a file or directory of another node, which is opened later.
func (h *holding) reopenOther(slot *heldSlot) fuse.Status {
	f, ino := h.filesystem, metadata.Ino(slot.ino)
	who := objects.Caller{UID: slot.uid, GID: slot.gid}
	var out fuse.OpenOut
	switch slot.kind {
	case heldDir:
		dir, err := f.tree.DirLater(who, ino)
		if err != nil {
			return f.errs.inodeStatus(err)
		}
		f.dirs.set(slot.id, &dirHandle{ino: ino, waits: true, list: listDir(dir), dots: func() []dirEntry {
			parent := ino
			if a, err := f.tree.Attr(background(), who, ino); err == nil && a.Parent != 0 {
				parent = a.Parent
			}
			return dotsOf(ino, parent)
		}})
		return fuse.OK
	case heldFile:
		file, err := f.tree.FileLater(who, ino, accessOf(slot.flags))
		if err != nil {
			return f.errs.inodeStatus(err)
		}
		if status := f.serve(file, slot.flags, &out); status != fuse.OK {
			return status
		}
		h.adopt(slot, out.Fh)
		return fuse.OK
	case heldLink: // is not opened
	}
	return fuse.EBADF
}

// showAgain makes the node of a view that a handle has open.
//
// Errors: ESTALE if the file has no such tensor any more; EIO.
func (h *holding) showAgain(ctx context.Context, slot *heldSlot) error {
	views := &h.views
	file, name, path := h.state.shows(slot)
	n := &viewNode{id: metadata.Ino(slot.ino), file: metadata.Ino(file), name: name, path: path}
	if file == 0 {
		return n.stale()
	}
	if path != "" {
		e, err := views.find(ctx, n, path)
		if isMissing(err) {
			return n.stale()
		}
		if err != nil {
			return err
		}
		n.show(e.Tensor)
	}
	views.adopt(n)
	return nil
}
