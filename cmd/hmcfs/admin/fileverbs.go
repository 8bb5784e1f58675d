package admin

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// fileAnswer is the answer to a call on files.
type fileAnswer struct {
	handle, n uint64
	// again is set for a call that a daemon before may have carried out.
	again bool
	// refused says more about an error than its number; empty if nothing does.
	refused string
	// out is the frame so far; the data of the answer is appended to it.
	out []byte
	// file and off are those of a call that moves registered memory. get and put are moveTo and moveFrom,
	// made once.
	file     *fs.Opened
	off      uint64
	get, put func(ctx context.Context, b objects.Blob) error
}

// moveTo reads into registered memory.
func (a *fileAnswer) moveTo(ctx context.Context, to objects.Blob) (err error) {
	a.n, err = a.file.ReadTo(ctx, a.off, to)
	return err
}

// moveFrom writes from registered memory.
func (a *fileAnswer) moveFrom(ctx context.Context, from objects.Blob) (err error) {
	a.n, err = a.file.WriteFrom(ctx, a.off, from)
	return err
}

// fileVerb executes a call on files. Its error has an errno.
type fileVerb func(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) error

// fileVerbs returns all of them, by their number.
func fileVerbs() [frames.FileVerbs]fileVerb {
	return [frames.FileVerbs]fileVerb{
		frames.FileOpen:            fileOpen,
		frames.FileClose:           fileClose,
		frames.FileStat:            fileStat,
		frames.FileRead:            fileRead,
		frames.FileWrite:           fileWrite,
		frames.FileList:            fileList,
		frames.FileMkdir:           fileMkdir,
		frames.FileRemove:          fileRemove,
		frames.FileRename:          fileRename,
		frames.FileCopy:            fileCopy,
		frames.FileLink:            fileLink,
		frames.FileSymlink:         fileSymlink,
		frames.FileReadlink:        fileReadlink,
		frames.FileChange:          fileChange,
		frames.FileGetAttribute:    fileGetAttribute,
		frames.FileSetAttribute:    fileSetAttribute,
		frames.FileListAttributes:  fileListAttributes,
		frames.FileRemoveAttribute: fileRemoveAttribute,
		frames.FileUsage:           fileUsage,
		frames.FileSync:            fileSync,
	}
}

// errnoOf returns the errno of an error of a call on files.
func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number
	}
	return hetero.StatusOf(err).Errno
}

func fileOpen(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) error {
	f, err := o.guest.Open(ctx, q.Name, q.Flags, q.Mode)
	if a.again && err != nil && errnoOf(err) == syscall.EEXIST {
		f, err = o.openMade(ctx, q, err)
	}
	if err != nil {
		return err
	}
	st, err := f.Stat(ctx)
	switch {
	case err != nil:
	case !a.again || q.Handle == 0:
		a.handle, err = o.add(f)
	case st.Ino != q.Size:
		err = syscall.ESTALE // another file has the name now
	default:
		if err = hadRead(ctx, f, q.Data); err == nil {
			a.handle, err = q.Handle, o.addAs(q.Handle, f)
		}
	}
	if err != nil {
		f.Close()
		return err
	}
	a.out = frames.AppendStat(a.out, &st)
	return nil
}

func fileClose(_ context.Context, o *openFiles, q *frames.FileCall, _ *fileAnswer) error {
	return o.close(q.Handle)
}

func fileStat(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) (err error) {
	var st syscall.Stat_t
	if q.Handle == 0 {
		st, err = o.guest.Stat(ctx, q.Name, q.Flags&frames.FileNoFollow == 0)
	} else {
		err = o.use(q.Handle, func(f *fs.Opened) (err error) {
			st, err = f.Stat(ctx)
			return err
		})
	}
	if err == nil {
		a.out = frames.AppendStat(a.out, &st)
	}
	return err
}

// withMemory calls do with the registered memory of a call.
func (o *openFiles) withMemory(ctx context.Context, q *frames.FileCall, do func(context.Context, objects.Blob) error) error {
	switch {
	case o.memory == nil:
		return syscall.EOPNOTSUPP
	case q.Size == 0:
		return nil
	}
	b := hetero.Blob{Memory: hetero.MemoryID(q.Memory), Off: devices.Offset(q.MemoryOff), Size: devices.Size(q.Size)}
	return o.memory.WithMemory(ctx, b, do)
}

func fileRead(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) error {
	f, err := o.begin(q.Handle)
	if err != nil {
		return err
	}
	defer o.done(f)
	switch {
	case q.Memory != 0:
		a.file, a.off = f.file, q.Off
		return o.withMemory(ctx, q, a.get)
	case q.Size > frames.MaxFileData:
		return syscall.EMSGSIZE
	}
	at := len(a.out)
	a.out = slices.Grow(a.out, int(q.Size))
	n, err := f.file.ReadAt(ctx, a.out[at:at+int(q.Size)], q.Off)
	a.n, a.out = uint64(n), a.out[:at+n]
	return err
}

func fileWrite(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) error {
	f, err := o.begin(q.Handle)
	if err != nil {
		return err
	}
	defer o.done(f)
	if q.Memory != 0 {
		a.file, a.off = f.file, q.Off
		return o.withMemory(ctx, q, a.put)
	}
	n, err := f.file.WriteAt(ctx, q.Data, q.Off)
	a.n = uint64(n)
	return err
}

func fileList(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) error {
	return o.use(q.Handle, func(f *fs.Opened) error {
		at, most := len(a.out), q.Size
		if most == 0 {
			most = frames.MaxFileData
		}
		return f.List(ctx, q.Off, func(e fs.Entry) (more bool) {
			one := frames.FileEntry{Next: e.Next, Ino: e.Ino, Type: e.Type, Name: e.Name}
			if a.n >= most {
				return false
			}
			if a.out, more = frames.AppendFileEntry(a.out, len(a.out)-at, &one); more {
				a.n++
			}
			return more
		})
	})
}

func fileMkdir(ctx context.Context, o *openFiles, q *frames.FileCall, _ *fileAnswer) error {
	return o.guest.Mkdir(ctx, q.Name, q.Mode)
}

func fileRemove(ctx context.Context, o *openFiles, q *frames.FileCall, _ *fileAnswer) error {
	kinds := [...]fs.RemoveKind{0: fs.RemoveAny, frames.FileOnlyDir: fs.RemoveDir, frames.FileNoDir: fs.RemoveFile}
	if int(q.Flags) >= len(kinds) {
		return syscall.EINVAL
	}
	return o.guest.Remove(ctx, q.Name, kinds[q.Flags])
}

func fileRename(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) error {
	switch {
	case q.Flags > frames.FileExchange:
		return syscall.EINVAL
	case q.Flags == frames.FileExchange && a.again:
		return syscall.EIO // whether the names were exchanged is not known
	}
	return o.guest.Rename(ctx, q.Name, q.Other, metadata.RenameFlags(q.Flags))
}

func fileCopy(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) (err error) {
	a.n, err = o.guest.Copy(ctx, q.Name, q.Other, q.Mode)
	return err
}

func fileLink(ctx context.Context, o *openFiles, q *frames.FileCall, _ *fileAnswer) error {
	return o.guest.Link(ctx, q.Name, q.Other)
}

func fileSymlink(ctx context.Context, o *openFiles, q *frames.FileCall, _ *fileAnswer) error {
	return o.guest.Symlink(ctx, q.Other, q.Name)
}

func fileReadlink(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) error {
	target, err := o.guest.Readlink(ctx, q.Name)
	a.out = append(a.out, target...)
	return err
}

func fileChange(ctx context.Context, o *openFiles, q *frames.FileCall, _ *fileAnswer) error {
	c, err := frames.ParseChange(q.Data)
	switch {
	case err != nil:
		return syscall.EINVAL
	case q.Handle == 0:
		return o.guest.Change(ctx, q.Name, q.Flags&frames.FileNoFollow == 0, changeOf(&c))
	case c.Set != frames.ChangeSize:
		return syscall.EINVAL
	}
	return o.use(q.Handle, func(f *fs.Opened) error { return f.Truncate(ctx, c.Size) })
}

func changeOf(c *frames.Change) (out objects.Change) {
	if c.Set&frames.ChangeMode != 0 {
		out.Mode = new(metadata.Mode(c.Mode & 0o7777))
	}
	if c.Set&frames.ChangeUID != 0 {
		out.UID = &c.UID
	}
	if c.Set&frames.ChangeGID != 0 {
		out.GID = &c.GID
	}
	if c.Set&frames.ChangeSize != 0 {
		out.Size = &c.Size
	}
	if c.Set&frames.ChangeAtime != 0 {
		out.Atime = &metadata.Timespec{Sec: c.Atime.Sec, Nsec: uint32(c.Atime.Nsec)}
	}
	if c.Set&frames.ChangeMtime != 0 {
		out.Mtime = &metadata.Timespec{Sec: c.Mtime.Sec, Nsec: uint32(c.Mtime.Nsec)}
	}
	return out
}

func fileGetAttribute(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) error {
	value, err := o.guest.Attribute(ctx, q.Name, q.Other)
	a.out = append(a.out, value...)
	return err
}

func fileSetAttribute(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) error {
	if q.Flags > frames.FileAttributeReplace {
		return syscall.EINVAL
	}
	err := o.guest.SetAttribute(ctx, q.Name, q.Other, q.Data, q.Flags)
	if refused, is := errors.AsType[*fs.RefusedError](err); is {
		a.refused = refused.Text
	}
	return err
}

func fileListAttributes(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) error {
	names, err := o.guest.Attributes(ctx, q.Name)
	for _, name := range names {
		a.out = append(append(a.out, name...), 0)
	}
	a.n = uint64(len(names))
	return err
}

func fileRemoveAttribute(ctx context.Context, o *openFiles, q *frames.FileCall, _ *fileAnswer) error {
	return o.guest.RemoveAttribute(ctx, q.Name, q.Other)
}

func fileUsage(ctx context.Context, o *openFiles, q *frames.FileCall, a *fileAnswer) error {
	usage, err := o.guest.StatFS(ctx, q.Name)
	if err == nil {
		a.out = frames.AppendUsage(a.out, usage)
	}
	return err
}

func fileSync(ctx context.Context, o *openFiles, q *frames.FileCall, _ *fileAnswer) error {
	return o.use(q.Handle, func(f *fs.Opened) error { return f.Sync(ctx) })
}
