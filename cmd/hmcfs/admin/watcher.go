package admin

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// Watcher returns a handler of those requests of the API that only look, for a server whose clients
// have shown that they may do so. They see what the user who mounted sees: names, not the bytes of
// files.
func (s *Server) Watcher() http.Handler {
	mux := http.NewServeMux()
	b := s.opts.Backend
	get(s, mux, adminapi.PathStatus, func(r *http.Request) (adminapi.Status, error) { return b.Status(r.Context(), false) })
	get(s, mux, adminapi.PathActivity, func(*http.Request) (adminapi.Activity, error) { return s.Activity(), nil })
	if s.opts.Topology != nil {
		mux.HandleFunc("GET "+adminapi.PathTopology, s.topology)
	}
	if s.opts.Keyed != nil {
		mux.HandleFunc("GET "+adminapi.PathKeys, s.keys)
		mux.HandleFunc("GET "+adminapi.PathEvents, s.events)
	}
	if s.opts.Files != nil {
		mux.HandleFunc("GET "+adminapi.PathListing, s.listing)
	}
	mux.HandleFunc("/", notHere)
	owner := Peer{UID: s.opts.Owner, GID: os.Getgid(), PID: os.Getpid()} // the user who mounted runs this process
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &conn{peer: owner, trusted: true, gone: func() {}}
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{}) // events come for ever; connections of a server have deadlines
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), connKey{}, c)))
	})
}

func (s *Server) topology(w http.ResponseWriter, _ *http.Request) {
	data, err := s.opts.Topology()
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(data) //nolint:errcheck // an error means that the peer has disconnected
}

// maxListed bounds the entries of a listing: each takes several lookups, on other nodes requests.
const maxListed = 500

// listing answers with the entries of a directory and what the page shows of them.
func (s *Server) listing(w http.ResponseWriter, r *http.Request) {
	ctx, work, err := s.shares.begin(r.Context(), nil)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	defer s.shares.end(work)
	guest := s.opts.Files.Begin(callerOf(connOf(r).peer))
	defer guest.End()
	name := r.URL.Query().Get("dir")
	if name == "" {
		name = "."
	}
	out, err := list(ctx, guest, name)
	if err != nil {
		s.answer(w, nil, fileFault(name, err))
		return
	}
	writeJSON(w, http.StatusOK, out)
}

// fileFault returns the error of a request about a file of one of the names that this API has for it.
func fileFault(name string, err error) error {
	switch errno := errnoOf(err); errno {
	case syscall.ENOENT:
		return fmt.Errorf("%s: %w", name, metadata.ErrNotExist)
	case syscall.ENOTDIR, syscall.EINVAL, syscall.ENAMETOOLONG, syscall.ELOOP:
		return fmt.Errorf("%s: %w: %w", name, errno, errInvalid)
	default:
		return fmt.Errorf("%s: %w", name, errno)
	}
}

func list(ctx context.Context, guest *fs.Guest, name string) (out adminapi.Listing, err error) {
	dir, err := guest.Open(ctx, name, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return out, err
	}
	defer dir.Close()
	out.Entries = []adminapi.Entry{}
	err = dir.List(ctx, 0, func(e fs.Entry) bool {
		if e.Name == "." || e.Name == ".." {
			return true
		}
		if out.More = len(out.Entries) == maxListed; out.More {
			return false
		}
		out.Entries = append(out.Entries, adminapi.Entry{Name: e.Name, Type: typeOf(e.Type)})
		return true
	})
	for i := range out.Entries {
		complete(ctx, guest, name, &out.Entries[i])
	}
	return out, err
}

// complete adds to an entry what is known of it. An entry that is gone by now stays as it is.
func complete(ctx context.Context, guest *fs.Guest, dir string, e *adminapi.Entry) {
	name := strings.TrimPrefix(dir+"/"+e.Name, "./")
	st, err := guest.Stat(ctx, name, false)
	if err != nil {
		return
	}
	e.Size, e.UID, e.Mode = uint64(st.Size), int(st.Uid), st.Mode&0o7777
	e.Modified = time.Unix(st.Mtim.Unix())
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return
	}
	for attribute, field := range map[string]*string{
		"user.hmc.state": &e.State, "user.hmc.dtype": &e.Dtype, "user.hmc.shape": &e.Shape, "user.hmc.key": &e.Key, "user.hmc.path": &e.Path,
	} {
		if value, err := guest.Attribute(ctx, name, attribute); err == nil {
			*field = string(value)
		}
	}
}
