package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
)

// restBuffer is the size, in bytes, of the memory through which the bytes of a request pass.
const restBuffer = 256 << 10

// restCall is one request about a file.
type restCall struct {
	w       http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	guest   *fs.Guest
	name    string
	// verb is the call that the request amounts to, and moved its bytes.
	verb  frames.FileVerb
	moved uint64
	// sent is set once a part of the answer may have been sent.
	sent bool
}

// files serves a request about a file.
func (s *Server) files(w http.ResponseWriter, r *http.Request) {
	s.during(w, r, func(ctx context.Context) { s.aboutFile(ctx, w, r) })
}

func (s *Server) aboutFile(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	memory := int64(restBuffer)
	if r.Method == http.MethodPost {
		memory = fs.BounceSize // it may be a copy
	}
	release, err := s.sessions.reserve(c, memory)
	if err != nil {
		writeFault(w, errnoOf(err), err.Error())
		return
	}
	defer release()
	guest := s.opts.Files.Begin(callerOf(c.peer))
	defer guest.End()
	q := &restCall{w: w, r: r, control: http.NewResponseController(w), guest: guest, name: strings.TrimPrefix(r.URL.Path, adminapi.PathFiles)}
	if q.name == "" {
		q.name = "."
	}
	begun := time.Now()
	fault := errnoOf(q.serve(ctx))
	s.opts.Calls.recordFile(c.peer, q.verb, q.moved, begun, fault)
	if fault == 0 {
		return
	}
	if q.sent {
		panic(http.ErrAbortHandler) // the client must not take the answer for a whole one
	}
	writeFault(w, fault, q.name+": "+fault.Error())
}

// writeFault answers a request about a file with an errno.
func writeFault(w http.ResponseWriter, fault syscall.Errno, text string) {
	status := httpStatus(fault)
	if status == http.StatusInternalServerError && fault != syscall.EIO {
		status = http.StatusBadRequest
	}
	writeError(w, status, strings.ToLower(unix.ErrnoName(fault)), text)
}

// serve executes the request.
func (q *restCall) serve(ctx context.Context) error {
	values := q.r.URL.Query()
	attribute := values.Get("attribute")
	switch q.r.Method {
	case http.MethodGet:
		switch {
		case attribute != "":
			q.verb = frames.FileGetAttribute
			value, err := q.guest.Attribute(ctx, q.name, attribute)
			return q.reply(value, err)
		case values.Has("attributes"):
			q.verb = frames.FileListAttributes
			names, err := q.guest.Attributes(ctx, q.name)
			return q.json(names, err)
		case values.Has("stat"):
			q.verb = frames.FileStat
			st, err := q.guest.Stat(ctx, q.name, true)
			return q.json(infoOf(q.name, &st), err)
		}
		return q.get(ctx)
	case http.MethodPut:
		if attribute != "" {
			q.verb = frames.FileSetAttribute
			value, err := io.ReadAll(io.LimitReader(q.r.Body, metadata.MaxXattr+1))
			if err != nil {
				return syscall.EINVAL
			}
			return q.json(adminapi.FileAnswer{}, q.guest.SetAttribute(ctx, q.name, attribute, value, 0))
		}
		return q.put(ctx)
	case http.MethodPost:
		return q.post(ctx)
	case http.MethodDelete:
		if attribute != "" {
			q.verb = frames.FileRemoveAttribute
			return q.json(adminapi.FileAnswer{}, q.guest.RemoveAttribute(ctx, q.name, attribute))
		}
		q.verb = frames.FileRemove
		return q.json(adminapi.FileAnswer{}, q.guest.Remove(ctx, q.name, fs.RemoveAny))
	}
	return syscall.EOPNOTSUPP
}

// json answers with a value, unless err is not nil.
func (q *restCall) json(value any, err error) error {
	if err == nil {
		writeJSON(q.w, http.StatusOK, value)
	}
	return err
}

// reply answers with bytes, unless err is not nil.
func (q *restCall) reply(data []byte, err error) error {
	if err == nil {
		q.w.Header().Set("Content-Type", "application/octet-stream")
		q.w.Write(data) //nolint:errcheck // an error means that the peer has disconnected
	}
	return err
}

// get sends the bytes of a file, or the entries of a directory.
func (q *restCall) get(ctx context.Context) error {
	q.verb = frames.FileRead
	off, size, err := q.part()
	if err != nil {
		return err
	}
	f, err := q.guest.Open(ctx, q.name, syscall.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat(ctx)
	if err != nil {
		return err
	}
	if st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		return q.list(ctx, f)
	}
	q.w.Header().Set("Content-Type", "application/octet-stream")
	buf := make([]byte, restBuffer)
	for size > 0 {
		n, err := f.ReadAt(ctx, buf[:min(size, uint64(len(buf)))], off)
		if err != nil || n == 0 {
			return err
		}
		_ = q.control.SetWriteDeadline(time.Now().Add(writeLimit)) // connections of this server support deadlines
		q.sent = true
		if _, err = q.w.Write(buf[:n]); err != nil {
			return syscall.EPIPE
		}
		off, size, q.moved = off+uint64(n), size-uint64(n), q.moved+uint64(n)
	}
	return nil
}

// part returns the part of a file that the request names.
func (q *restCall) part() (off, size uint64, err error) {
	size = 1<<63 - 1
	for name, to := range map[string]*uint64{"offset": &off, "size": &size} {
		if text := q.r.URL.Query().Get(name); text != "" {
			if *to, err = strconv.ParseUint(text, 10, 63); err != nil {
				return 0, 0, syscall.EINVAL
			}
		}
	}
	return off, size, nil
}

// list sends the entries of a directory.
func (q *restCall) list(ctx context.Context, dir *fs.Opened) error {
	q.verb = frames.FileList
	l := newLines(q.w)
	err := dir.List(ctx, 0, func(e fs.Entry) bool {
		q.sent = true
		q.moved++
		l.put(adminapi.FileInfo{Name: e.Name, Type: typeOf(e.Type), Ino: e.Ino})
		return l.failed == nil
	})
	l.end()
	return err
}

// put writes the body.
func (q *restCall) put(ctx context.Context) error {
	q.verb = frames.FileWrite
	off, _, err := q.part()
	if err != nil {
		return err
	}
	mode := uint64(0o644)
	if text := q.r.URL.Query().Get("mode"); text != "" {
		if mode, err = strconv.ParseUint(text, 8, 12); err != nil {
			return syscall.EINVAL
		}
	}
	flags := uint32(syscall.O_WRONLY | syscall.O_CREAT)
	if !q.r.URL.Query().Has("offset") {
		flags |= syscall.O_TRUNC
	}
	f, err := q.guest.Open(ctx, q.name, flags, uint32(mode))
	if err != nil {
		return err
	}
	defer f.Close()
	if err = q.fill(ctx, f, off); err != nil {
		return err
	}
	return q.json(adminapi.FileAnswer{Bytes: q.moved}, nil)
}

// fill writes the body to a file.
func (q *restCall) fill(ctx context.Context, f *fs.Opened, off uint64) error {
	buf := make([]byte, restBuffer)
	for {
		_ = q.control.SetReadDeadline(time.Now().Add(bodyLimit)) // connections of this server support deadlines
		n, err := io.ReadFull(q.r.Body, buf)
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return syscall.EIO
		}
		for part := buf[:n]; len(part) > 0; {
			put, err := f.WriteAt(ctx, part, off)
			if err == nil && put == 0 {
				err = syscall.ENOSPC
			}
			if err != nil {
				return err
			}
			part, off, q.moved = part[put:], off+uint64(put), q.moved+uint64(put)
		}
		if ended {
			return nil
		}
	}
}

// post changes names.
func (q *restCall) post(ctx context.Context) error {
	q.verb = frames.FileRename
	var asked adminapi.FileRequest
	data, err := io.ReadAll(io.LimitReader(q.r.Body, 4*frames.MaxFileName))
	if err != nil || adminapi.Unmarshal(data, &asked) != nil {
		return syscall.EINVAL
	}
	switch asked {
	case adminapi.FileRequest{Copy: asked.Copy}:
		q.verb = frames.FileCopy
		q.moved, err = q.guest.Copy(ctx, q.name, asked.Copy, 0)
	case adminapi.FileRequest{Rename: asked.Rename}:
		err = q.guest.Rename(ctx, q.name, asked.Rename, 0)
	case adminapi.FileRequest{Mkdir: asked.Mkdir}:
		q.verb = frames.FileMkdir
		mode, perr := strconv.ParseUint(asked.Mkdir, 8, 12)
		if perr != nil {
			return syscall.EINVAL
		}
		err = q.guest.Mkdir(ctx, q.name, uint32(mode))
	default:
		return syscall.EINVAL
	}
	return q.json(adminapi.FileAnswer{Bytes: q.moved}, err)
}

func typeOf(mode uint32) string {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return "file"
	case syscall.S_IFDIR:
		return "dir"
	case syscall.S_IFLNK:
		return "symlink"
	}
	return "other"
}

func infoOf(name string, st *syscall.Stat_t) adminapi.FileInfo {
	return adminapi.FileInfo{
		Name: path.Base(name), Type: typeOf(st.Mode), Ino: st.Ino, Mode: strconv.FormatUint(uint64(st.Mode&0o7777), 8),
		Size: st.Size, UID: st.Uid, GID: st.Gid, Links: uint64(st.Nlink), MTime: time.Unix(st.Mtim.Unix()), //nolint:unconvert // its type differs between architectures
	}
}
