package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

var (
	errForbidden = errors.New("not permitted for this user")
	errInvalid   = errors.New("invalid request")
	// errFilesOpen reports that the daemon, or the machine, can open no more files.
	errFilesOpen = errors.New("the daemon has as many files open as it may; close sessions, or start it with a higher limit (ulimit -n, or LimitNOFILE= of its service)")
	errEnding    = errors.New("the daemon is shutting down")
)

// question is one request about files or memory, with its descriptors.
type question struct {
	peer Peer
	// one is the session that the request belongs to; nil for none.
	one *session
	// received are the descriptors received. All of them are closed when the request has
	// been solved.
	received []*os.File
	// file is the descriptor of the file, nil with plain HTTP, and memory are those of the
	// memory: see split.
	file   *os.File
	memory []*os.File
	// framed is set for a frame of a session, with which descriptors can be passed.
	framed bool
}

// callerOf returns the client as a caller of the store.
func callerOf(p Peer) objects.Caller {
	return objects.Caller{UID: uint32(p.UID), GID: uint32(p.GID), PID: p.PID, Groups: p.Groups}
}

// split separates the descriptor of the file from those of the memory.
//
// A request that names the file otherwise has no descriptor of it.
func (q *question) split(named adminapi.File) error {
	if q.framed && named.Path != "" {
		q.memory = q.received
	}
	if !q.framed || named.Path != "" {
		return nil
	}
	if len(q.received) == 0 {
		return fmt.Errorf("%w: too few descriptors: the first one is that of the file", errInvalid)
	}
	q.file, q.memory = q.received[0], q.received[1:]
	return nil
}

// solution is the answer to a question.
type solution struct {
	// value is sent as JSON.
	value any
	// files are sent with it, and closed afterwards.
	files []*os.File
	// listed is the number of keys in the value.
	listed int
	// end releases what the request holds until it is cancelled; nil means nothing.
	end func()
}

// solver computes the answer to a question from its JSON.
type solver func(ctx context.Context, q *question, read func(into any) error) (solution, error)

// sharing serves a solver of questions about files over plain HTTP.
func (s *Server) sharing(verb frames.RequestVerb, solve solver) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !connOf(r).trusted {
			// The client only names a file, and nothing proves that it could reach it.
			s.opts.Calls.recordRequest(connOf(r).peer, verb, 0, time.Now(), errForbidden)
			writeError(w, http.StatusForbidden, adminapi.CodeForbidden,
				"requests without the file's descriptor are only for root and the user who mounted; use the hmcfs commands, the Go client, or the attributes")
			return
		}
		s.solve(w, r, nil, verb, solve)
	}
}

// solve serves a solver over plain HTTP.
func (s *Server) solve(w http.ResponseWriter, r *http.Request, one *session, verb frames.RequestVerb, solve solver) {
	s.during(w, r, func(ctx context.Context) {
		begun, control := time.Now(), http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(s.opts.Handshake)) // a connection of ours has deadlines
		sol, err := solve(ctx, &question{peer: connOf(r).peer, one: one}, func(into any) error {
			data, rerr := io.ReadAll(http.MaxBytesReader(w, r.Body, frames.MaxRequest))
			if rerr != nil {
				return fmt.Errorf("%w: %w", errInvalid, rerr)
			}
			return adminapi.Unmarshal(data, into)
		})
		s.opts.Calls.recordRequest(connOf(r).peer, verb, sol.listed, begun, err)
		s.answer(w, sol.value, err)
	})
}

// during executes a request, which the end of the server interrupts.
func (s *Server) during(w http.ResponseWriter, r *http.Request, do func(ctx context.Context)) {
	ctx, work, err := s.shares.begin(r.Context(), nil)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	defer s.shares.end(work)
	do(ctx)
}

func (s *Server) bind(ctx context.Context, q *question, read func(any) error) (solution, error) {
	var r adminapi.BindRequest
	err := read(&r)
	if err == nil {
		err = errors.Join(q.split(r.File), s.mayChange())
	}
	if err != nil {
		return solution{}, err
	}
	ino, tensor, err := s.fileOf(ctx, q, r.File)
	if err == nil && tensor != "" {
		err = fmt.Errorf("%w: %s is a tensor of a file, whose memory it is; bind to an empty file", errInvalid, r.Path)
	}
	if err != nil {
		return solution{}, err
	}
	handles, err := objects.HandlesOf(r.Memory, q.memory)
	if err != nil {
		return solution{}, err
	}
	bound, err := s.opts.Sharer.Bind(ctx, ino, callerOf(q.peer), objects.BindRequest{Memory: r.Memory, Handles: handles})
	return solution{value: &bound}, sharingFault(r.File, err)
}

// export serves a request to export, or to end exports.
func (s *Server) export(ctx context.Context, q *question, read func(any) error) (solution, error) {
	var r adminapi.ExportRequest
	err := read(&r)
	if err == nil {
		err = q.split(r.File)
	}
	if err != nil {
		return solution{}, err
	}
	if err = checkExport(r, q); err != nil {
		return solution{}, err
	}
	ino, tensor, err := s.fileOf(ctx, q, r.File)
	if err != nil {
		return solution{}, err
	}
	if r.End {
		err = s.opts.Sharer.EndExports(ctx, ino, callerOf(q.peer))
		return solution{value: adminapi.EndAnswer{Ino: ino, Ended: true}}, sharingFault(r.File, err)
	}
	if err = s.mayChange(); err != nil { // whoever has the memory can write to it
		return solution{}, err
	}
	e, err := s.opts.Sharer.Export(ctx, ino, callerOf(q.peer),
		objects.ExportOptions{Kind: r.Kind, Holder: r.Holder, Session: r.Hold, Tensor: tensor})
	if err != nil {
		return solution{}, sharingFault(r.File, err)
	}
	sol := solution{end: e.End}
	memory := e.Memory
	if q.framed && !r.Text && e.Handle.File != nil {
		memory, sol.files = placed(memory), []*os.File{e.Handle.File}
	} else if err := e.Handle.Close(); err != nil {
		return sol, err
	}
	sol.value = memory
	return sol, nil
}

// checkExport returns an error if parts of a request exclude each other.
func checkExport(r adminapi.ExportRequest, q *question) error {
	switch {
	case len(q.memory) > 0:
		return fmt.Errorf("%w: %d descriptors too many: an export takes that of the file alone", errInvalid, len(q.memory))
	case r.End && (r.Hold || r.Text || r.Holder != 0 || r.Kind != ""):
		return fmt.Errorf("%w: a request to end the exports takes only the file", errInvalid)
	case r.Hold && !q.framed:
		return fmt.Errorf("%w: only a session's frames can hold an export; name a process that holds it instead", errInvalid)
	case r.Hold && r.Holder != 0:
		return fmt.Errorf("%w: an export is held by the session or by process %d, not by both", errInvalid, r.Holder)
	case r.Holder < 0:
		return fmt.Errorf("%w: %d is not a process ID", errInvalid, r.Holder)
	}
	return nil
}

// fileOf returns the file that a request is about, and, if it is a tensor that is named by its path, its path in the file.
func (s *Server) fileOf(ctx context.Context, q *question, named adminapi.File) (ino metadata.Ino, tensor string, err error) {
	switch {
	case q.file != nil && named != adminapi.File{}:
		return 0, "", fmt.Errorf("%w: the file is named both by its descriptor and by name", errInvalid)
	case q.file == nil && (named.Path == "") == (named.Ino == 0):
		return 0, "", fmt.Errorf(`%w: name the file, by "path" or by "ino"`, errInvalid)
	}
	if s.opts.Files != nil && q.framed && q.file == nil {
		guest := s.opts.Files.Begin(callerOf(q.peer))
		defer guest.End()
		ino, tensor, err = guest.Ino(ctx, named.Path)
		return ino, tensor, namedFault(named.Path, err)
	}
	ino, err = s.opts.Sharer.File(ctx, callerOf(q.peer), named, q.file)
	return ino, "", err
}

// sharingFault returns an error of the Sharer, which knows a file by its number, with the path that the request has. A file that was
// given by a descriptor has none: its path may lead through directories that the caller can't read.
func sharingFault(named adminapi.File, err error) error {
	if err == nil || named.Path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", named.Path, err)
}

// namedFault returns the error of a request that names a file, whose errno is that of package fs.
func namedFault(name string, err error) error {
	number, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return err
	}
	kind, text := errInvalid, number.Error()
	switch number {
	case syscall.ENOENT, syscall.ENOTDIR:
		kind = ErrNotFound
	case syscall.EACCES, syscall.EPERM:
		kind = errForbidden
	case syscall.EHOSTUNREACH, syscall.ESTALE:
		kind = hetero.ErrDisconnected
	case syscall.EOPNOTSUPP:
		kind, text = hetero.ErrUnsupported, "only the memory of a file of this node, or of a tensor in one, can be shared: copy a file of another node here"
	case syscall.EIO:
		kind = hetero.ErrIO
	default:
	}
	return fmt.Errorf("%s: %w: %s", name, kind, text)
}
