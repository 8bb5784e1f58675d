package fs

import (
	"bytes"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
)

// A request that the kernel sends again may have been carried out by the process that has died
// before it could answer. What can be done twice with the same result is done again. For the
// others the state tells: when the kernel sends a request to create a name it has found none, and
// when it sends one to remove a name it has found one, and no other process can change a directory
// through the kernel meanwhile. What sessions and other nodes do at the same moment is told apart
// as far as the inode shows it.

const errExist = fuse.Status(unix.EEXIST)

// isResent reports whether the kernel has sent the request before.
func isResent(in *fuse.InHeader) bool { return in.Unique&resent != 0 }

// mostAge bounds the age of a name that a request, sent again, can have created. It covers
// the time in which a daemon starts.
const mostAge = 5 * time.Minute

// answerMade answers a request to create a name that exists: if it was sent again, and the inode is one
// that it would have created, the request has succeeded.
func (h *holding) answerMade(cancel <-chan struct{}, in *fuse.InHeader, name string, kind uint32, out *fuse.EntryOut) fuse.Status {
	if !isResent(in) {
		return errExist
	}
	if status := h.Lookup(cancel, in, name, out); status != fuse.OK {
		return errExist
	}
	a, err := h.tree.Attr(background(), h.creds.of(&in.Caller), metadata.Ino(out.NodeId))
	young := err == nil && time.Since(time.Unix(a.Btime.Sec, int64(a.Btime.Nsec))) < mostAge
	if out.Mode&unix.S_IFMT == kind && out.Uid == in.Uid && young {
		return fuse.OK
	}
	h.Forget(out.NodeId, 1)
	*out = fuse.EntryOut{}
	return errExist
}

// Mkdir implements fuse.RawFileSystem.
func (h *holding) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	status := h.filesystem.Mkdir(cancel, in, name, out)
	if status == errExist {
		return h.answerMade(cancel, &in.InHeader, name, unix.S_IFDIR, out)
	}
	return status
}

// Mknod implements fuse.RawFileSystem.
func (h *holding) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	status := h.filesystem.Mknod(cancel, in, name, out)
	if status == errExist {
		return h.answerMade(cancel, &in.InHeader, name, in.Mode&unix.S_IFMT, out)
	}
	return status
}

// Symlink implements fuse.RawFileSystem.
func (h *holding) Symlink(cancel <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	status := h.filesystem.Symlink(cancel, in, target, name, out)
	if status != errExist {
		return status
	}
	if status = h.answerMade(cancel, in, name, unix.S_IFLNK, out); status != fuse.OK {
		return status
	}
	link := *in
	link.NodeId = out.NodeId
	if got, status := h.Readlink(cancel, &link); status != fuse.OK || string(got) != target {
		h.Forget(out.NodeId, 1)
		*out = fuse.EntryOut{}
		return errExist
	}
	return fuse.OK
}

// Link implements fuse.RawFileSystem.
func (h *holding) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	status := h.filesystem.Link(cancel, in, name, out)
	if status != errExist || !isResent(&in.InHeader) {
		return status
	}
	if h.Lookup(cancel, &in.InHeader, name, out) != fuse.OK {
		return status
	}
	if out.NodeId == in.Oldnodeid {
		return fuse.OK
	}
	h.Forget(out.NodeId, 1)
	*out = fuse.EntryOut{}
	return status
}

// Create implements fuse.RawFileSystem.
func (h *holding) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if h.again(&in.InHeader, heldFile, &out.OpenOut) {
		if h.Lookup(cancel, &in.InHeader, name, &out.EntryOut) == fuse.OK && out.NodeId == h.inoOf(out.Fh) {
			return fuse.OK
		}
		// Others have removed the name, or given it to another file.
		if out.NodeId != 0 {
			h.Forget(out.NodeId, 1)
		}
		h.Release(cancel, &fuse.ReleaseIn{InHeader: in.InHeader, Fh: out.Fh})
		*out = fuse.CreateOut{}
	}
	status := h.filesystem.Create(cancel, in, name, out)
	if status == errExist {
		status = h.openMade(cancel, in, name, out)
	}
	if status == fuse.OK {
		h.opened(&in.InHeader, out.NodeId, in.Flags, heldFile, &out.OpenOut)
	}
	return status
}

// inoOf returns the inode of an open file; 0 if there is none.
func (h *holding) inoOf(fh uint64) uint64 {
	file, ok := h.files.get(fh)
	if !ok || file.open == nil {
		return 0
	}
	return uint64(file.open.Ino())
}

// openMade opens a file that the same request has made before.
func (h *holding) openMade(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if status := h.answerMade(cancel, &in.InHeader, name, unix.S_IFREG, &out.EntryOut); status != fuse.OK {
		return status
	}
	// The mode is for others: who creates a file may open it.
	open := fuse.OpenIn{InHeader: in.InHeader, Flags: in.Flags &^ (unix.O_CREAT | unix.O_EXCL | unix.O_TRUNC)}
	open.NodeId, open.Uid, open.Gid = out.NodeId, 0, 0
	status := h.open(cancel, &open, &out.OpenOut)
	if status != fuse.OK {
		h.Forget(out.NodeId, 1)
		*out = fuse.CreateOut{}
	}
	return status
}

// answerGone answers a request to remove a name.
func answerGone(in *fuse.InHeader, status fuse.Status) fuse.Status {
	if status == fuse.ENOENT && isResent(in) {
		return fuse.OK
	}
	return status
}

// Unlink implements fuse.RawFileSystem.
func (h *holding) Unlink(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return answerGone(in, h.filesystem.Unlink(cancel, in, name))
}

// Rmdir implements fuse.RawFileSystem.
func (h *holding) Rmdir(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return answerGone(in, h.filesystem.Rmdir(cancel, in, name))
}

// Rename implements fuse.RawFileSystem. An exchange that was carried out can't be told from one
// that was not by the names alone, so the inode of the first is recorded before.
func (h *holding) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	if metadata.RenameFlags(in.Flags)&metadata.Exchange != 0 {
		ino, unique := h.ino(cancel, &in.InHeader, oldName), in.Unique&^resent
		if before, known := h.state.exchangedBy(unique); known && isResent(&in.InHeader) && before != ino {
			return fuse.OK
		}
		h.state.exchange(unique, ino)
	}
	return answerGone(&in.InHeader, h.filesystem.Rename(cancel, in, oldName, newName))
}

// ino returns the inode of a name; 0 if there is none.
func (h *holding) ino(cancel <-chan struct{}, in *fuse.InHeader, name string) uint64 {
	var out fuse.EntryOut
	if h.Lookup(cancel, in, name, &out) != fuse.OK {
		return 0
	}
	h.Forget(out.NodeId, 1)
	return out.NodeId
}

// SetXAttr implements fuse.RawFileSystem.
func (h *holding) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string, data []byte) fuse.Status {
	status := h.filesystem.SetXAttr(cancel, in, name, data)
	if status != errExist || !isResent(&in.InHeader) {
		return status
	}
	have := make([]byte, len(data))
	if n, got := h.GetXAttr(cancel, &in.InHeader, name, have); got == fuse.OK && bytes.Equal(have[:n], data) {
		return fuse.OK
	}
	return status
}

// RemoveXAttr implements fuse.RawFileSystem.
func (h *holding) RemoveXAttr(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	status := h.filesystem.RemoveXAttr(cancel, in, name)
	if status == fuse.ENODATA && isResent(in) {
		return fuse.OK
	}
	return status
}

// Write implements fuse.RawFileSystem.
func (h *holding) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return h.Writev(cancel, in, [][]byte{data})
}

// Writev implements fuse.RawFileSystem. An append that was sent again may be there already, at the
// end that the kernel saw: then it is written over itself.
func (h *holding) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	if isResent(&in.InHeader) && in.Flags&unix.O_APPEND != 0 && h.isAppended(cancel, in, data) {
		once := *in
		once.Flags &^= unix.O_APPEND
		in = &once
	}
	return h.filesystem.Writev(cancel, in, data)
}

// isAppended reports whether the file continues at the offset of a write with the data, or with
// the beginning of it.
func (h *holding) isAppended(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) bool {
	file, status := h.fileOf(in.Fh)
	if status != fuse.OK {
		return false
	}
	end := file.src.Size()
	if file.isOther() { // what was last reported may be old
		a, err := h.tree.Attr(background(), h.creds.of(&in.Caller), file.open.Ino())
		if err != nil {
			return false
		}
		end = a.Size
	}
	if end <= in.Offset {
		return end == in.Offset
	}
	want := bytes.Join(data, nil)
	want = want[:min(uint64(len(want)), end-in.Offset)]
	have := make([]byte, len(want))
	read := fuse.ReadIn{InHeader: in.InHeader, Fh: in.Fh, Offset: in.Offset, Size: uint32(len(have))}
	result, status := h.Read(cancel, &read, have)
	if status != fuse.OK {
		return false
	}
	defer result.Done()
	got, status := result.Bytes(have)
	return status == fuse.OK && bytes.Equal(got, want)
}
