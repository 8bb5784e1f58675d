package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	guards "github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
)

const (
	memorySize = 3*4096 + 123
	someIno    = metadata.Ino(2048)
	settle     = 10 * time.Second
)

// sharer is a fake store: it records requests and exports one memfd.
type sharer struct {
	t      *testing.T
	memory *os.File

	mu      sync.Mutex
	asked   asked
	failure error
	// live counts the exports that are not ended.
	live int
}

func (s *sharer) File(_ context.Context, _ objects.Caller, named adminapi.File, shown *os.File) (metadata.Ino, error) {
	switch {
	case shown == nil && named.Path == "sim0/a", shown == nil && named.Ino == someIno:
		return someIno, nil
	case shown == nil:
		return 0, fmt.Errorf("%v: %w", named, metadata.ErrNotExist)
	}
	st, err := shown.Stat()
	if err != nil || st.Name() == "" {
		return 0, fmt.Errorf("the file's descriptor: %w", err)
	}
	return someIno, nil
}

func (s *sharer) Bind(_ context.Context, ino metadata.Ino, by objects.Caller, r objects.BindRequest) (adminapi.BindAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = asked{bind: r, caller: by}
	for i := range r.Handles {
		h := &r.Handles[i]
		if h.File != nil {
			part := make([]byte, h.Size)
			if _, err := h.File.ReadAt(part, int64(h.Offset)); err != nil {
				s.t.Errorf("piece %d: %v", i, err)
			}
			s.asked.bound = append(s.asked.bound, part...)
		}
		if err := h.Close(); err != nil {
			s.t.Error(err)
		}
	}
	return adminapi.BindAnswer{Ino: ino, Device: "sim0", Size: r.Memory.Size, State: "bound"}, s.failure
}

func (s *sharer) Export(_ context.Context, _ metadata.Ino, by objects.Caller, o objects.ExportOptions) (objects.Exported, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = asked{option: o, caller: by}
	if s.failure != nil {
		return objects.Exported{}, s.failure
	}
	fd, err := unix.FcntlInt(s.memory.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return objects.Exported{}, err
	}
	s.live++
	number := 99
	e := objects.Exported{
		Memory: share.Memory{
			Family: "sim", PID: os.Getpid(), Size: memorySize,
			Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &number, Size: memorySize}},
		},
		Handle: devices.Handle{Kind: devices.HandleMemfd, Size: memorySize, File: os.NewFile(uintptr(fd), "export")},
	}
	if o.Session {
		e.End = s.end
	}
	return e, nil
}

func (s *sharer) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live--
}

func (s *sharer) EndExports(context.Context, metadata.Ino, objects.Caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = 0
	return s.failure
}

func (s *sharer) exports() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live
}

// fail makes all further requests fail.
func (s *sharer) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
}

// last returns the most recent request, and its caller.
func (s *sharer) last() asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// asked is a request to a store.
type asked struct {
	caller objects.Caller
	bind   objects.BindRequest
	option objects.ExportOptions
	// bound has the content of the memory of a bind.
	bound []byte
}

// shareRig is a server that shares, the fake behind it and a file.
type shareRig struct {
	*sharer

	server *admin.Server
	socket string
	client *client.Client
	file   *os.File
}

// rig starts a server whose peers are of one user.
func rig(t *testing.T, o admin.Options, uid int) *shareRig {
	t.Helper()
	kit.Check(t)
	dir, err := os.MkdirTemp("", "hmcfs-admin-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &shareRig{sharer: &sharer{t: t, memory: kit.Memfd(t, 7, memorySize)}, socket: filepath.Join(dir, "s")}
	o.Socket, o.Backend, o.Sharer, o.Owner, o.Keyed = r.socket, &backend{}, r.sharer, owner, &fakeKeyed{}
	o.Peer = func(*net.UnixConn) (admin.Peer, error) {
		return admin.Peer{UID: uid, GID: uid, PID: os.Getpid(), Groups: []uint32{5, 6}}, nil
	}
	if r.server, err = admin.Listen(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := r.server.Close(context.Background()); cerr != nil {
			t.Errorf("Close: %v", cerr)
		}
	})
	if r.file, err = os.OpenFile(dir, unix.O_PATH, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.file.Close() })
	r.client = client.New(r.socket)
	return r
}

// piecesOf are pieces by the places of their descriptors.
func piecesOf(size devices.Size, places ...int) []share.Piece {
	var out []share.Piece
	for i, place := range places {
		out = append(out, share.Piece{Kind: devices.HandleMemfd, FD: &place, Offset: devices.Offset(i * 100), Size: size})
	}
	return out
}

func TestBindCarriesDescriptors(t *testing.T) {
	r := rig(t, admin.Options{}, 0)
	a, b := kit.Memfd(t, 1, 5000), kit.Memfd(t, 2, 5000)
	// The second piece lies in the first descriptor too.
	memory := share.Memory{Family: "sim", PID: 42, Size: 3000, Pieces: piecesOf(1000, 0, 0, 1)}
	bound, err := r.client.Bind(t.Context(), r.file, memory, a, b)
	if err != nil || bound.Ino != someIno || bound.State != "bound" {
		t.Fatalf("%+v, %v", bound, err)
	}
	want := append(append(kit.Bytes(1, 0, 1000), kit.Bytes(1, 100, 1000)...), kit.Bytes(2, 200, 1000)...)
	if !bytes.Equal(r.last().bound, want) {
		t.Error("the descriptors are others, or in another order")
	}
	if got := r.last().bind.Memory; got.PID != 42 || *got.Pieces[2].FD != 1 {
		t.Errorf("the store is told %+v", got)
	}
	if by := r.last().caller; by.UID != 0 || by.PID != os.Getpid() || len(by.Groups) != 2 {
		t.Errorf("asked by %+v", by)
	}
}

func TestBindWithoutDescriptorsIsPlain(t *testing.T) {
	r := rig(t, admin.Options{}, owner)
	const text = `{"path":"sim0/a","memory":{"family":"cuda","device":"GPU-1","pid":7,"size":4,
		"pieces":[{"kind":"ipc","handle":"00ff","offset":0,"size":4}]}}`
	code, body := get(t, r.socket, http.MethodPost, adminapi.PathBind, text)
	if code != http.StatusOK || !strings.Contains(body, `"ino":2048`) {
		t.Fatalf("%d %s", code, body)
	}
	if r.last().bind.Handles != nil || r.last().bind.Memory.Pieces[0].Handle != "00ff" || r.last().bind.Memory.PID != 7 {
		t.Errorf("asked %+v", r.last().bind)
	}
	// A descriptor's number in the other process goes through as it is.
	code, body = get(t, r.socket, http.MethodPost, adminapi.PathBind,
		`{"ino":2048,"memory":{"family":"host","pid":7,"size":4,"pieces":[{"kind":"memfd","fd":3,"offset":0,"size":4}]}}`)
	if code != http.StatusOK || *r.last().bind.Memory.Pieces[0].FD != 3 {
		t.Errorf("%d %s: %+v", code, body, r.last().bind)
	}
}

func TestExportCarriesADescriptor(t *testing.T) {
	r := rig(t, admin.Options{}, 0)
	e, err := r.client.Export(t.Context(), r.file, "memfd")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, memorySize)
	if _, err := e.File.ReadAt(got, 0); err != nil || kit.DiffAt(got, 7, 0) >= 0 {
		t.Errorf("the descriptor is of something else: %v", err)
	}
	if p := e.Memory.Pieces[0]; *p.FD != 0 || r.last().option.Kind != "memfd" || r.last().option.Holder != 0 {
		t.Errorf("%+v for %+v", p, r.last().option)
	}
	if n := r.exports(); n != 1 {
		t.Errorf("%d exports while one is held", n)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	kit.Eventually(t, settle, func() error {
		if n := r.exports(); n != 0 {
			return fmt.Errorf("%d exports after the only one was closed", n)
		}
		return nil
	})
}

func TestHandleIsTextThatLasts(t *testing.T) {
	r := rig(t, admin.Options{}, 0)
	m, err := r.client.Handle(t.Context(), r.file, "", 17)
	if err != nil || *m.Pieces[0].FD != 99 || m.PID != os.Getpid() || r.last().option.Holder != 17 {
		t.Fatalf("%+v, %v for %+v", m, err, r.last().option)
	}
	code, body := get(t, r.socket, http.MethodPost, adminapi.PathExport, `{"path":"sim0/a","kind":"memfd"}`)
	var plain share.Memory
	if err := json.Unmarshal([]byte(body), &plain); code != http.StatusOK || err != nil || *plain.Pieces[0].FD != 99 {
		t.Errorf("%d %s", code, body)
	}
	if n := r.exports(); n != 2 {
		t.Errorf("%d exports last, want 2", n)
	}
	if err := r.client.EndExports(t.Context(), r.file); err != nil || r.exports() != 0 {
		t.Errorf("ending them: %v, %d are left", err, r.exports())
	}
	code, body = get(t, r.socket, http.MethodPost, adminapi.PathExport, `{"ino":2048,"end":true}`)
	if code != http.StatusOK || !strings.Contains(body, `"ended":true`) {
		t.Errorf("%d %s", code, body)
	}
}

// TestSharingRefuses sends invalid requests, none of which may leak anything: rig looks for
// leaked descriptors.
func TestSharingRefuses(t *testing.T) {
	r := rig(t, admin.Options{}, 0)
	a, b := kit.Memfd(t, 1, 5000), kit.Memfd(t, 2, 5000)
	for name, c := range map[string]struct {
		memory share.Memory
		files  []*os.File
		want   string
	}{
		"a place beyond the last":  {share.Memory{Pieces: piecesOf(10, 0, 2)}, []*os.File{a, b}, "descriptor index 2, but 2"},
		"a place before the first": {share.Memory{Pieces: piecesOf(10, -1)}, []*os.File{a}, "descriptor index -1, but 1"},
		"one that no piece is in":  {share.Memory{Pieces: piecesOf(10, 1)}, []*os.File{a, b}, "no piece refers to descriptor 0"},
		"no pieces":                {share.Memory{}, []*os.File{a}, "no piece refers to descriptor 0"},
	} {
		_, err := r.client.Bind(t.Context(), r.file, c.memory, c.files...)
		var said *client.Error
		if !errors.As(err, &said) || said.Code != adminapi.CodeInvalid || !strings.Contains(said.Text, c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if r.last().bind.Memory.Family != "" {
		t.Errorf("the store was asked for %+v", r.last().bind)
	}
	for text, want := range map[string]int{
		``:                              400,
		`{`:                             400,
		`{"path":"sim0/a","x":1}`:       400,
		`{"path":"sim0/a","ino":2048}`:  400,
		`{"path":"sim0/b"}`:             404,
		`{"ino":5}`:                     404,
		`{"path":"sim0/a","hold":true}`: 400,
		`{"path":"sim0/a","holder":-1}`: 400,
		`{"path":"sim0/a","end":true,"kind":"ipc"}`:     400,
		`{"path":"sim0/a"} {}`:                          400,
		`{"path":"` + strings.Repeat("x", 2<<20) + `"}`: 400,
	} {
		if code, body := get(t, r.socket, http.MethodPost, adminapi.PathExport, text); code != want || !strings.Contains(body, `"error":`) {
			t.Errorf("export %.60s: %d %s, want %d", text, code, body, want)
		}
	}
}

// A user whose filesystems do not answer is told to try again, as with other limits, and
// not that the request was invalid.
func TestSilentFileSystemIsBusy(t *testing.T) {
	silent := exec.Command("/bin/sleep", "60")
	g := guards.NewGuard(func() *exec.Cmd { return silent }, 100*time.Millisecond)
	r := rig(t, admin.Options{Guard: g}, 0)
	t.Cleanup(func() {
		_ = g.Close()
		_ = silent.Process.Kill()
	})
	_, err := r.client.Bind(t.Context(), r.file, share.Memory{Pieces: piecesOf(10, 0)}, kit.Memfd(t, 1, 100))
	var said *client.Error
	if !errors.As(err, &said) || said.Code != adminapi.CodeBusy {
		t.Errorf("told %v", err)
	}
}

func TestSharingTellsTheStoresErrors(t *testing.T) {
	r := rig(t, admin.Options{}, 0)
	for err, want := range map[error]string{
		objects.ErrForbidden: adminapi.CodeForbidden, objects.ErrBusy: adminapi.CodeBusy, objects.ErrInvalid: adminapi.CodeInvalid,
		objects.ErrUnsupported: adminapi.CodeUnsupported, devices.ErrHandle: adminapi.CodeInvalid,
		devices.ErrUnsupported: adminapi.CodeUnsupported, devices.ErrOutOfMemory: adminapi.CodeNoMemory, objects.ErrLost: adminapi.CodeLost,
		metadata.ErrNotExist: adminapi.CodeNotFound, io.ErrNoProgress: adminapi.CodeInternal,
	} {
		failure := fmt.Errorf("the store: %w", err)
		r.fail(failure)
		_, berr := r.client.Bind(t.Context(), r.file, share.Memory{Pieces: piecesOf(10, 0)}, kit.Memfd(t, 1, 100))
		_, xerr := r.client.Export(t.Context(), r.file, "")
		for _, got := range []error{berr, xerr} {
			var said *client.Error
			if !errors.As(got, &said) || said.Code != want || said.Text != failure.Error() {
				t.Errorf("%v is told as %v, want %s", err, got, want)
			}
		}
	}
}

func TestOthersAreServedWhereTheyAreLetIn(t *testing.T) {
	const alice = owner + 1
	r := rig(t, admin.Options{}, alice)
	if _, err := r.client.Export(t.Context(), r.file, ""); !client.IsForbidden(err) {
		t.Errorf("export by another user: %v", err)
	}
	if st, err := os.Stat(r.socket); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	open := rig(t, admin.Options{Open: true}, alice)
	if st, err := os.Stat(open.socket); err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	e, err := open.client.Export(t.Context(), open.file, "")
	if err != nil {
		t.Fatal(err)
	}
	if by := open.last().caller; by.UID != alice || by.GID != alice {
		t.Errorf("asked by %+v", by)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	// A client that passes no descriptor could name files that it can't reach.
	for _, path := range []string{adminapi.PathBind, adminapi.PathExport} {
		if code, body := get(t, open.socket, http.MethodPost, path, `{"path":"sim0/a"}`); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for _, path := range []string{adminapi.PathStatus, adminapi.PathVersion, adminapi.PathMetrics, adminapi.PathActivity, adminapi.PathPage} {
		if code, body := get(t, open.socket, http.MethodGet, path, ""); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	unknown := rig(t, admin.Options{Open: true}, -1)
	if _, err := unknown.client.Export(t.Context(), unknown.file, ""); !client.IsForbidden(err) {
		t.Errorf("export by nobody knows whom: %v", err)
	}
}

// TestOthersExportsAreBounded has another user hold as many exports as permitted, each in a session of its own.
func TestOthersExportsAreBounded(t *testing.T) {
	refused := &admin.Refusals{}
	r := rig(t, admin.Options{Open: true, Refusals: refused}, owner+1)
	var held []*client.Export
	var last error
	for range 200 {
		e, err := r.client.Export(t.Context(), r.file, "")
		if last = err; err != nil {
			break
		}
		held = append(held, e)
	}
	if last == nil || len(held) < 10 || len(held) > 100 {
		t.Errorf("%d exports are held, then: %v", len(held), last)
	}
	if l := refused.Limits()[1]; l.Name != "user-sessions" || l.Refused == 0 || l.Limit != uint64(len(held)) {
		t.Errorf("%d are held, and counted is %+v", len(held), l)
	}
	for _, e := range held {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	kit.Eventually(t, settle, func() error {
		e, err := r.client.Export(t.Context(), r.file, "")
		if err != nil {
			return err
		}
		return e.Close()
	})
}

// TestOthersConnectionsAreBounded has another user open connections without a session.
func TestOthersConnectionsAreBounded(t *testing.T) {
	refused := &admin.Refusals{}
	r := rig(t, admin.Options{Open: true, Refusals: refused}, owner+1)
	for range 100 {
		c, err := net.Dial("unix", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	kit.Eventually(t, settle, func() error {
		if l := refused.Limits()[0]; l.Name != "user-connections" || l.Refused != 100-l.Limit {
			return fmt.Errorf("of 100 %+v", l)
		}
		return nil
	})
}

func TestTheEndOfTheServerEndsExports(t *testing.T) {
	r := rig(t, admin.Options{}, 0)
	e, err := r.client.Export(t.Context(), r.file, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.server.EndShares(t.Context()); err != nil || r.exports() != 0 {
		t.Errorf("%v; %d exports are left", err, r.exports())
	}
	if _, err := r.client.Export(t.Context(), r.file, ""); err == nil || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("export behind the end: %v", err)
	}
	// The memory itself is the client's for as long as it holds it.
	if _, err := e.File.ReadAt(make([]byte, 1), 0); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestClientGivesUp ends the context of a client whose server does not answer.
func TestClientGivesUp(t *testing.T) {
	kit.Check(t)
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		c, aerr := l.Accept()
		if aerr == nil {
			defer func() { _ = c.Close() }()
			_, _ = c.Read(make([]byte, 1))
		}
		cancel()
	}()
	_, err = client.New(filepath.Join(dir, "s")).Export(ctx, os.Stdin, "")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
