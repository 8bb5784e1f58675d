package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/owner"
)

// The errors of a Backend that have their own status.
var (
	ErrBusy     = errors.New("busy")
	ErrNotFound = errors.New("no such object")
)

// Backend serves requests about the mount. Its methods may be called from any goroutine.
type Backend interface {
	Version() adminapi.Version
	Status(ctx context.Context, count bool) (adminapi.Status, error)
	// Object fails with ErrNotFound if no file has the number.
	Object(ctx context.Context, ino metadata.Ino) (adminapi.Object, error)
	Config() []adminapi.Setting
	// Cluster fails with ErrNotFound if the mount is not part of a cluster.
	Cluster() (adminapi.Cluster, error)
	// Forget removes a node that will not return from the cluster. It fails with
	// ErrNotFound for an unknown node, and with ErrBusy for one that is connected.
	Forget(ctx context.Context, node members.Name) error
	Fsck(ctx context.Context, r adminapi.FsckRequest) (adminapi.FsckReport, error)
	// Umount ends the mount and returns when everything but the admin socket is cleaned up.
	// If it fails with ErrBusy, nothing has changed.
	Umount(ctx context.Context, r adminapi.UmountRequest) (adminapi.UmountAnswer, error)
	// Upgrade ends the daemon a moment after it has returned, and has another program continue
	// the mount.
	Upgrade(ctx context.Context, r adminapi.UpgradeRequest) (adminapi.UpgradeAnswer, error)
}

// Sharer gives other processes access to the memory of files. Its methods may be called
// from any goroutine.
type Sharer interface {
	// File returns the file of a request: that of the descriptor received with it or, if
	// that is nil, the file that the request names, which by must be able to reach.
	File(ctx context.Context, by objects.Caller, named adminapi.File, shown *os.File) (metadata.Ino, error)
	// Bind makes memory the content of a file. It takes ownership of the handles'
	// descriptors, even if it fails.
	Bind(ctx context.Context, ino metadata.Ino, by objects.Caller, r objects.BindRequest) (adminapi.BindAnswer, error)
	// Export returns the handles of the memory of a file.
	Export(ctx context.Context, ino metadata.Ino, by objects.Caller, o objects.ExportOptions) (objects.Exported, error)
	// EndExports ends every export of a file.
	EndExports(ctx context.Context, ino metadata.Ino, by objects.Caller) error
}

// Options describe a server.
type Options struct {
	// Socket is the path to listen on. An existing file there is removed: the caller holds
	// the lock of the directory.
	Socket string
	// Backend serves requests about the mount. Required.
	Backend Backend
	// Sharer serves requests about shared memory; nil disables them.
	Sharer Sharer
	// Keyed serves requests about keys; nil disables them.
	Keyed Keyed
	// Files serves requests about files; nil disables them.
	Files *fs.Files
	// Collector serves requests about several files; nil disables them.
	Collector Collector
	// Guard receives the descriptors that clients send; nil receives them in this process.
	// The caller closes it.
	Guard *owner.Guard
	// Owner is the user who mounted.
	Owner int
	// Open admits every user who can reach the socket. Users other than root and the owner
	// may only bind, export, and use keys.
	Open bool
	// ReadOnly refuses changes of keys, and of the memory of files.
	ReadOnly bool
	// Peer identifies the client; nil asks the kernel.
	Peer func(*net.UnixConn) (Peer, error)
	// Handshake bounds how long a client may take to send its descriptors, and to read the
	// answer; 0 means 10 s.
	Handshake time.Duration
	// Continues is the time within which the clients of sessions come back to the daemon that follows this one, if this one dies; 0
	// ends their sessions. Continued is set if this one follows another.
	Continues time.Duration
	Continued bool
	// Refusals counts refused requests; nil counts nothing.
	Refusals *Refusals
	// Calls measures the calls of sessions; nil measures nothing.
	Calls *Calls
	// Gatherer provides the metrics; nil disables them.
	Gatherer prometheus.Gatherer
	// Topology returns how the devices are connected, as JSON; nil disables that request.
	Topology func() ([]byte, error)
	// Page is the address of the page, with its token; empty if there is none.
	Page string
	// Debug enables profiles.
	Debug bool
	// Logger receives errors; nil logs nothing.
	Logger *zap.Logger
}

// Server is a running admin server.
type Server struct {
	opts     Options
	http     *http.Server
	shares   shares
	sessions *sessions
	// numbered has the verbs of calls by their number in frames less one.
	numbered []numberedVerb
	// fileVerbs has the calls on files by their number.
	fileVerbs [frames.FileVerbs]fileVerb
	// fileCalls has calls on files whose memory is used again.
	fileCalls sync.Pool
	// lastFile is the number of the last open file of a session.
	lastFile atomic.Uint64
	// pollers bounds the sessions that poll for the next call.
	pollers *frames.Pollers
	turns   turns
	// solvers has the requests of frames by their numbers, but for those about lists and streams; nil where the server has none.
	solvers map[frames.RequestVerb]solver
	done    chan struct{}
}

type connKey struct{}

// Listen starts a server.
func Listen(ctx context.Context, o Options) (*Server, error) {
	if o.Peer == nil {
		o.Peer = peerOf
	}
	if o.Handshake == 0 {
		o.Handshake = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if err := os.Remove(o.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", o.Socket)
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	unixListener, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("admin socket: a %T", l), l.Close())
	}
	// The check of the peer decides who may send requests; unless other users are admitted,
	// they cannot connect either.
	mode := os.FileMode(0o600)
	if o.Open {
		mode = 0o666
	}
	if err := os.Chmod(o.Socket, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("admin socket: %w", err), l.Close())
	}
	s := &Server{opts: o, done: make(chan struct{}), sessions: newSessions(o), fileVerbs: fileVerbs()}
	s.http = &http.Server{
		Handler: s.checked(s.routes()),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          zap.NewStdLog(o.Logger),
	}
	asking := &listener{
		UnixListener: unixListener, ask: o.Peer, owner: o.Owner, log: o.Logger,
		sessions: s.sessions.count, open: map[int]int{}, refusals: o.Refusals,
	}
	_ = asking.keepSpare() // the first connection may need it
	go func() {
		defer close(s.done)
		if err := s.http.Serve(asking); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("admin server ended", zap.Error(err))
		}
	}()
	return s, nil
}

// Close lets answers in progress finish, for as long as the context lasts, ends the server,
// and removes the socket.
func (s *Server) Close(ctx context.Context) error {
	err := errors.Join(s.EndShares(ctx), s.http.Shutdown(ctx))
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.done
	return err
}

func connOf(r *http.Request) *conn {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return &conn{peer: Peer{UID: -1, GID: -1}}
	}
	return c
}

// checked admits root and the owner and, if other users are admitted, these to the handlers
// that check permissions themselves.
func (s *Server) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := connOf(r)
		if c.full {
			w.Header().Set("Connection", "close")
			status, code := statusOf(errFilesOpen)
			writeError(w, status, code, errFilesOpen.Error())
			return
		}
		letIn := s.opts.Open && forOthers(r.URL.Path) && c.peer.UID >= 0
		if !c.trusted && !letIn {
			writeError(w, http.StatusForbidden, adminapi.CodeForbidden,
				"only root and the user who mounted it may do this; run the command as one of them")
			return
		}
		// The previous answer on this connection may have set a deadline.
		if c.UnixConn != nil {
			_ = c.SetWriteDeadline(time.Time{}) // a closed connection is noticed on the next write
		}
		next.ServeHTTP(w, r)
	})
}

// forOthers reports whether the handler of a path checks the permissions of each user
// itself.
func forOthers(path string) bool {
	switch path {
	case adminapi.PathBind, adminapi.PathExport, adminapi.PathCollect, adminapi.PathVerify, adminapi.PathSession, adminapi.PathRegister,
		adminapi.PathKeys, adminapi.PathEvents:
		return true
	}
	return strings.HasPrefix(path, adminapi.PathCall) || strings.HasPrefix(path, adminapi.PathFiles)
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	b := s.opts.Backend
	get(s, mux, adminapi.PathVersion, func(*http.Request) (adminapi.Version, error) { return b.Version(), nil })
	get(s, mux, adminapi.PathConfig, func(*http.Request) ([]adminapi.Setting, error) { return b.Config(), nil })
	get(s, mux, adminapi.PathStatus, func(r *http.Request) (adminapi.Status, error) {
		return b.Status(r.Context(), r.URL.Query().Get("count") == "1")
	})
	get(s, mux, adminapi.PathActivity, func(*http.Request) (adminapi.Activity, error) { return s.Activity(), nil })
	get(s, mux, adminapi.PathPage, func(*http.Request) (adminapi.Page, error) {
		if s.opts.Page == "" {
			return adminapi.Page{}, fmt.Errorf("this mount serves no page: %w", ErrNotFound)
		}
		return adminapi.Page{URL: s.opts.Page}, nil
	})
	get(s, mux, adminapi.PathCluster, func(*http.Request) (adminapi.Cluster, error) { return b.Cluster() })
	post(s, mux, adminapi.PathForget, func(ctx context.Context, r adminapi.ForgetRequest) (adminapi.Cluster, error) {
		if err := b.Forget(ctx, r.Node); err != nil {
			return adminapi.Cluster{}, err
		}
		return b.Cluster()
	})
	mux.HandleFunc("GET "+adminapi.PathObject, s.object)
	post(s, mux, adminapi.PathFsck, b.Fsck)
	post(s, mux, adminapi.PathUmount, b.Umount)
	post(s, mux, adminapi.PathUpgrade, b.Upgrade)
	s.solvers = map[frames.RequestVerb]solver{frames.RequestRegister: s.register}
	if s.opts.Sharer != nil {
		s.solvers[frames.RequestBind], s.solvers[frames.RequestExport] = s.bind, s.export
		mux.HandleFunc("POST "+adminapi.PathBind, s.sharing(frames.RequestBind, s.bind))
		mux.HandleFunc("POST "+adminapi.PathExport, s.sharing(frames.RequestExport, s.export))
	}
	if s.opts.Collector != nil {
		s.solvers[frames.RequestCollect], s.solvers[frames.RequestVerify] = s.collect, s.verify
		mux.HandleFunc("POST "+adminapi.PathCollect, s.sharing(frames.RequestCollect, s.collect))
		mux.HandleFunc("POST "+adminapi.PathVerify, s.sharing(frames.RequestVerify, s.verify))
	}
	if s.opts.Keyed != nil {
		s.addKeyed(mux)
	}
	if s.opts.Files != nil {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete} {
			mux.HandleFunc(method+" "+adminapi.PathFiles, s.files)
		}
	}
	if s.opts.Gatherer != nil {
		mux.Handle("GET "+adminapi.PathMetrics, promhttp.HandlerFor(s.opts.Gatherer, promhttp.HandlerOpts{}))
	}
	if s.opts.Debug {
		addProfiles(mux)
	}
	mux.HandleFunc("/", notHere)
	return mux
}

func notHere(w http.ResponseWriter, r *http.Request) {
	writeError(w, http.StatusNotFound, adminapi.CodeNotFound, fmt.Sprintf("no %s %s here", r.Method, r.URL.Path))
}

// get adds an endpoint that answers with a value.
func get[A any](s *Server, mux *http.ServeMux, path string, value func(*http.Request) (A, error)) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		v, err := value(r)
		s.answer(w, v, err)
	})
}

// post adds an endpoint that answers a request in JSON.
func post[Q, A any](s *Server, mux *http.ServeMux, path string, do func(context.Context, Q) (A, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if readJSON(w, r, &q) {
			v, err := do(r.Context(), q)
			s.answer(w, v, err)
		}
	})
}

func (s *Server) addKeyed(mux *http.ServeMux) {
	mux.HandleFunc("POST "+adminapi.PathSession, s.session)
	mux.HandleFunc("POST "+adminapi.PathRegister, s.registerPlain)
	mux.HandleFunc("GET "+adminapi.PathKeys, s.keys)
	mux.HandleFunc("GET "+adminapi.PathEvents, s.events)
	all := verbs()
	if s.opts.ReadOnly {
		for name, do := range all {
			all[name] = s.guarded(name, do)
		}
	}
	for name, do := range all {
		mux.HandleFunc("POST "+adminapi.PathCall+string(name), s.call(name, do))
	}
	s.numbered, s.pollers = numberedVerbs(all), frames.NewPollers()
}

func addProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

func (s *Server) object(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("ino")
	ino, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		writeError(w, http.StatusBadRequest, adminapi.CodeInvalid, fmt.Sprintf("ino=%q is not an inode number", text))
		return
	}
	o, err := s.opts.Backend.Object(r.Context(), metadata.Ino(ino))
	s.answer(w, o, err)
}

func (s *Server) answer(w http.ResponseWriter, value any, err error) {
	if err == nil {
		writeJSON(w, http.StatusOK, value)
		return
	}
	status, code := s.fault(err)
	writeError(w, status, code, err.Error())
}

// fault returns the status and code of an error. The daemon's own errors are logged too.
func (s *Server) fault(err error) (status int, code string) {
	status, code = statusOf(err)
	if status == http.StatusInternalServerError {
		s.opts.Logger.Warn("admin request failed", zap.Error(err))
	}
	return status, code
}

// readJSON reads a request's body; an empty body leaves the zero value.
func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	dec.DisallowUnknownFields()
	if r.ContentLength == 0 {
		return true
	}
	if err := dec.Decode(into); err != nil {
		writeError(w, http.StatusBadRequest, adminapi.CodeInvalid, "request body: "+err.Error())
		return false
	}
	return true
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		writeError(w, http.StatusInternalServerError, adminapi.CodeInternal, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(data, '\n')) //nolint:errcheck // an error means that the peer has disconnected
}

func writeError(w http.ResponseWriter, status int, code, text string) {
	writeJSON(w, status, adminapi.Error{Text: text, Code: code})
}
