package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/owner"
)

var (
	errForbidden = errors.New("not permitted for this user")
	errInvalid   = errors.New("invalid request")
	// errFilesOpen reports that the daemon, or the machine, can open no more files.
	errFilesOpen = errors.New("the daemon has as many files open as it may; close sessions, or start it with a higher limit (ulimit -n, or LimitNOFILE= of its service)")
	errEnding    = errors.New("the daemon is shutting down")
)

// question is one request about files, with its descriptors.
type question struct {
	peer Peer
	// received are the descriptors received. All of them are closed when the request has
	// been answered.
	received []*os.File
	// file is the descriptor of the file, nil with plain HTTP, and memory are those of the
	// memory: see split.
	file   *os.File
	memory []*os.File
	// carried is set if the answer can carry descriptors.
	carried bool
	// conn is the connection if it passes descriptors, else nil. Nothing else reads from it
	// any more.
	conn *conn
}

// callerOf returns the client as a caller of the store.
func callerOf(p Peer) objects.Caller {
	return objects.Caller{UID: uint32(p.UID), GID: uint32(p.GID), PID: p.PID, Groups: p.Groups}
}

// split separates the descriptor of the file from those of the memory.
//
// A request that names the file otherwise has no descriptor of it.
func (q *question) split(named adminapi.File) error {
	if q.carried && named.Path != "" {
		q.memory = q.received
	}
	if !q.carried || named.Path != "" {
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
	reply adminapi.Reply
	// files are sent with the reply, and closed afterwards.
	files []*os.File
	// end releases what the connection holds; nil means nothing.
	end func()
}

// plain returns the reply for plain HTTP.
func (s solution) plain() any {
	switch {
	case s.reply.Bound != nil:
		return s.reply.Bound
	case s.reply.Memory != nil:
		return s.reply.Memory
	case s.reply.Registered != nil:
		return s.reply.Registered
	case s.reply.Collected != nil:
		return s.reply.Collected
	case s.reply.Verified != nil:
		return s.reply.Verified
	default:
		return s.reply.Ended
	}
}

// solver computes the answer to a question from its JSON.
type solver func(ctx context.Context, q *question, read func(into any) error) (solution, error)

// sharing serves a solver of questions about one file.
func (s *Server) sharing(solve solver) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !upgrades(r) && !connOf(r).trusted {
			// The client only names a file, and nothing proves that it could reach it.
			writeError(w, http.StatusForbidden, adminapi.CodeForbidden,
				"requests without the file's descriptor are only for root and the user who mounted; use the hmcfs commands, the Go client, or the attributes")
			return
		}
		s.solve(w, r, solve)
	}
}

func upgrades(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), adminapi.DescriptorProtocol)
}

// solve serves a solver: by plain HTTP or, after an upgrade, with descriptors beside the
// JSON.
func (s *Server) solve(w http.ResponseWriter, r *http.Request, solve solver) {
	if upgrades(r) {
		s.upgrade(w, r, solve)
		return
	}
	s.during(w, r, nil, func(ctx context.Context) {
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(s.opts.Handshake)) // a connection of ours has deadlines
		sol, err := solve(ctx, &question{peer: connOf(r).peer}, func(into any) error {
			data, rerr := io.ReadAll(http.MaxBytesReader(w, r.Body, adminapi.MaxFrame))
			if rerr != nil {
				return fmt.Errorf("%w: %w", errInvalid, rerr)
			}
			return adminapi.Unmarshal(data, into)
		})
		adminapi.CloseAll(sol.files)
		s.answer(w, sol.plain(), err)
	})
}

// during executes a request, which the end of the server interrupts. carried is the connection if it
// passes descriptors, else nil.
func (s *Server) during(w http.ResponseWriter, r *http.Request, carried *conn, do func(ctx context.Context)) {
	ctx, work, err := s.shares.begin(r.Context(), carried)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	defer s.shares.end(work)
	do(ctx)
}

// upgrade switches the connection to frames with descriptors.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, solve solver) {
	c := connOf(r)
	s.during(w, r, c, func(ctx context.Context) { s.upgraded(ctx, c, w, r, solve) })
}

func (s *Server) upgraded(ctx context.Context, c *conn, w http.ResponseWriter, r *http.Request, solve solver) {
	if r.ContentLength != 0 {
		s.answer(w, nil, fmt.Errorf("%w: a request to upgrade has no body", errInvalid))
		return
	}
	// From here on only this function reads from the connection.
	_, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.answer(w, nil, fmt.Errorf("take the connection over: %w", err))
		return
	}
	defer func() { _ = c.Close() }()
	if buffered.Reader.Buffered() > 0 {
		// Data received before the 101 has lost its descriptors.
		return
	}
	if err := s.serveFrames(ctx, c, solve); err != nil {
		s.opts.Logger.Info("a client that sends descriptors disconnected", zap.Error(err), zap.Int("uid", c.peer.UID))
	}
}

// serveFrames reads one question, answers it, and holds the export if there is one.
func (s *Server) serveFrames(ctx context.Context, c *conn, solve solver) error {
	const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
		adminapi.DescriptorProtocol + "\r\n\r\n"
	if err := c.SetDeadline(time.Now().Add(s.opts.Handshake)); err != nil {
		return err
	}
	if _, err := io.WriteString(c.UnixConn, switching); err != nil {
		return err
	}
	sol, err := s.solveFrame(ctx, c, solve)
	if sol.end != nil {
		defer sol.end()
	}
	if err != nil {
		return s.refuse(c, err)
	}
	return s.deliver(ctx, c, sol)
}

// solveFrame reads a question and computes its answer. The descriptors received are closed
// when it returns: that of the file keeps the mount busy.
func (s *Server) solveFrame(ctx context.Context, c *conn, solve solver) (solution, error) {
	q := question{peer: c.peer, carried: true, conn: c}
	var files []*os.File
	defer func() { adminapi.CloseAll(files) }()
	return solve(ctx, &q, func(into any) error {
		data, got, err := adminapi.ReadGuarded(c.UnixConn, s.opts.Guard, uint32(c.peer.UID))
		switch files = got; {
		case errors.Is(err, owner.ErrSilent):
			return err
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			return fmt.Errorf("%w: %w", errFilesOpen, err)
		case err != nil:
			return fmt.Errorf("%w: %w", errInvalid, err)
		}
		q.received = got
		return adminapi.Unmarshal(data, into)
	})
}

func (s *Server) refuse(c *conn, fault error) error {
	status, code := s.fault(fault)
	if err := c.SetWriteDeadline(time.Now().Add(s.opts.Handshake)); err != nil {
		return err
	}
	return adminapi.WriteFrame(c.UnixConn, adminapi.Reply{
		Status: status, Failure: &adminapi.Error{Text: fault.Error(), Code: code},
	}, nil)
}

// deliver sends the answer, and waits for the end of what the connection holds.
func (s *Server) deliver(ctx context.Context, c *conn, sol solution) error {
	sol.reply.Status, sol.reply.Descriptors = http.StatusOK, len(sol.files)
	err := c.SetDeadline(time.Now().Add(s.opts.Handshake))
	if err == nil {
		err = adminapi.WriteFrame(c.UnixConn, sol.reply, sol.files)
	}
	adminapi.CloseAll(sol.files)
	if err != nil || sol.end == nil {
		return err
	}
	return s.hold(ctx, c)
}

// hold returns when the client closes the connection, which the kernel also does when the
// client is killed, or when the server ends.
func (s *Server) hold(ctx context.Context, c *conn) error {
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	// The client sends nothing more: anything received ends the wait too.
	var one [1]byte
	_, err := c.Read(one[:])
	if err == nil {
		return fmt.Errorf("%w: bytes after the request", errInvalid)
	}
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
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
	handles, err := handlesOf(r, q)
	if err != nil {
		return solution{}, err
	}
	bound, err := s.opts.Sharer.Bind(ctx, ino, callerOf(q.peer), objects.BindRequest{Memory: r.Memory, Handles: handles})
	return solution{reply: adminapi.Reply{Bound: &bound}}, err
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
		return solution{reply: adminapi.Reply{Ended: &adminapi.EndAnswer{Ino: ino, Ended: true}}}, err
	}
	if err = s.mayChange(); err != nil { // whoever has the memory can write to it
		return solution{}, err
	}
	e, err := s.opts.Sharer.Export(ctx, ino, callerOf(q.peer),
		objects.ExportOptions{Kind: r.Kind, Holder: r.Holder, Session: r.Hold, Tensor: tensor})
	if err != nil {
		return solution{}, err
	}
	sol := solution{end: e.End}
	memory := e.Memory
	if q.carried && !r.Text && e.Handle.File != nil {
		memory, sol.files = placed(memory), []*os.File{e.Handle.File}
	} else if err := e.Handle.Close(); err != nil {
		return sol, err
	}
	sol.reply.Memory = &memory
	return sol, nil
}

// checkExport returns an error if parts of a request exclude each other.
func checkExport(r adminapi.ExportRequest, q *question) error {
	switch {
	case len(q.memory) > 0:
		return fmt.Errorf("%w: %d descriptors too many: an export takes that of the file alone", errInvalid, len(q.memory))
	case r.End && (r.Hold || r.Text || r.Holder != 0 || r.Kind != ""):
		return fmt.Errorf("%w: a request to end the exports takes only the file", errInvalid)
	case r.Hold && !q.carried:
		return fmt.Errorf("%w: only a connection that passes descriptors can hold an export; name a process that holds it instead", errInvalid)
	case r.Hold && r.Holder != 0:
		return fmt.Errorf("%w: an export is held by the connection or by process %d, not by both", errInvalid, r.Holder)
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
	if s.opts.Files != nil && q.carried && q.file == nil {
		guest := s.opts.Files.Begin(callerOf(q.peer))
		defer guest.End()
		ino, tensor, err = guest.Ino(ctx, named.Path)
		return ino, tensor, namedFault(named.Path, err)
	}
	ino, err = s.opts.Sharer.File(ctx, callerOf(q.peer), named, q.file)
	return ino, "", err
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
