package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// opened records a handle that the kernel is about to be told of.
func (h *holding) opened(in *fuse.InHeader, ino uint64, flags uint32, kind heldKind, out *fuse.OpenOut) {
	var shows *viewNode
	if isView(metadata.Ino(ino)) {
		shows, _ = h.views.get(metadata.Ino(ino)) // the kernel may have forgotten it
	}
	slot := heldSlot{
		id: out.Fh, ino: ino, unique: in.Unique &^ resent, flags: flags,
		openFlags: out.OpenFlags, backing: out.BackingID, kind: kind, uid: in.Uid, gid: in.Gid, pid: in.Pid,
	}
	file, ok := h.files.get(out.Fh)
	isRead := ok && kind == heldFile && file.published
	if isRead {
		slot.reading = reads
	}
	if !h.state.add(slot, shows) {
		h.log.Warn("too many files are open for all to stay open when the daemon dies", zap.Uint64("ino", ino), zap.Int("limit", mostHandles))
	}
	if isRead {
		file.file.Track(heldProgress{h.state, out.Fh})
	}
}

// again returns the handle that a request has opened before it was sent again.
func (h *holding) again(in *fuse.InHeader, kind heldKind, out *fuse.OpenOut) bool {
	if in.Unique&resent == 0 {
		return false
	}
	slot, ok := h.state.openedBy(in.Unique&^resent, kind)
	if ok {
		out.Fh, out.OpenFlags, out.BackingID = slot.id, slot.openFlags, slot.backing
	}
	return ok
}

// Open implements fuse.RawFileSystem.
func (h *holding) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if h.again(&in.InHeader, heldFile, out) {
		return fuse.OK
	}
	status := h.filesystem.Open(cancel, in, out)
	if status == fuse.OK {
		h.opened(&in.InHeader, in.NodeId, in.Flags, heldFile, out)
	}
	return status
}

// OpenDir implements fuse.RawFileSystem.
func (h *holding) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if h.again(&in.InHeader, heldDir, out) {
		return fuse.OK
	}
	status := h.filesystem.OpenDir(cancel, in, out)
	if status == fuse.OK {
		h.opened(&in.InHeader, in.NodeId, in.Flags, heldDir, out)
	}
	return status
}

// Release implements fuse.RawFileSystem.
func (h *holding) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	h.state.remove(in.Fh, heldFile)
	h.filesystem.Release(cancel, in)
}

// ReleaseDir implements fuse.RawFileSystem.
func (h *holding) ReleaseDir(in *fuse.ReleaseIn) {
	h.state.remove(in.Fh, heldDir)
	h.filesystem.ReleaseDir(in)
}
