package admin_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	hmc "github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
)

// newFilesRig returns a server with the files of two simulated devices, whose directories every
// user may write.
func newFilesRig(t testing.TB, uid int) *keyedRig {
	t.Helper()
	return newFilesRigAfter(t, uid, func(*hmc.Files) {})
}

// newFilesRigAfter is newFilesRig for files that were there before the server.
func newFilesRigAfter(t testing.TB, uid int, before func(*hmc.Files)) *keyedRig {
	t.Helper()
	kit.Check(t)
	ctx := context.Background()
	meta, err := metadata.Open(ctx, memkv.New(), metadata.Options{})
	fatal(t, err)
	engine, err := transport.New(transport.Options{})
	fatal(t, err)
	devs := []devices.Device{sim.New(0, sim.Params{Size: 64 * devices.MiB}), sim.New(1, sim.Params{Size: 64 * devices.MiB, Mapped: true})}
	store, err := objects.Open(ctx, objects.Options{Meta: meta, Engine: engine, Devices: devs, DirMode: 0o1777})
	fatal(t, err)
	files := hmc.NewFiles(hmc.Options{Store: store, Engine: engine})
	t.Cleanup(func() {
		files.Close() //nolint:contextcheck // closing is not interrupted
		err := errors.Join(store.Close(ctx, objects.CloseOptions{}), engine.Close(), devs[0].Close(), devs[1].Close(), meta.Close())
		if err != nil {
			t.Error(err)
		}
	})
	before(files)
	refusals := &admin.Refusals{}
	r := newKeyedRigWith(t, uid, func(o *admin.Options) {
		o.Files, o.Calls, o.Refusals = files, admin.NewCalls(nil), refusals
	})
	r.refusals = refusals
	return r
}

// file sends a call on files.
func (f *framesByHand) file(verb frames.FileVerb, id uint64, q frames.FileCall) {
	f.t.Helper()
	f.write(f.fileFrame(verb, id, q))
}

// fileFrame returns the frame of a call on files.
func (f *framesByHand) fileFrame(verb frames.FileVerb, id uint64, q frames.FileCall) []byte {
	f.t.Helper()
	b, err := frames.AppendFileCall(frames.Begin(nil, frames.KindFile, uint8(verb), id), &q)
	fatal(f.t, err)
	b = append(b, q.Data...)
	fatal(f.t, frames.Finish(b, 0))
	return b
}

// answered reads the answer to a call on files.
func (f *framesByHand) answered() (uint64, frames.FileAnswer) {
	f.t.Helper()
	h, body := f.next()
	a, err := frames.ParseFileAnswer(body)
	if h.Kind != frames.KindFileAnswer || err != nil {
		f.t.Fatalf("answered %+v, %v", h, err)
	}
	return h.ID, a
}

// asked makes a call on files.
func (f *framesByHand) asked(verb frames.FileVerb, q frames.FileCall) (frames.FileAnswer, syscall.Errno) {
	f.t.Helper()
	f.file(verb, 1, q)
	_, a := f.answered()
	return a, syscall.Errno(a.Errno)
}

func (f *framesByHand) opened(name string) uint64 {
	f.t.Helper()
	a, fault := f.asked(frames.FileOpen, frames.FileCall{Name: name, Flags: newFile, Mode: 0o600})
	if fault != 0 {
		f.t.Fatalf("open %s: %v", name, fault)
	}
	return a.Handle
}

const newFile = syscall.O_RDWR | syscall.O_CREAT

// TestHostileFileCalls makes calls that break a rule each. Each has its errno, and the session goes
// on.
func TestHostileFileCalls(t *testing.T) {
	r := newFilesRig(t, owner+1)
	f, other := openFrames(t, r.socket), openFrames(t, r.socket)
	mine, theirs := f.opened("sim0/a"), other.opened("sim0/b")
	long := strings.Repeat("n", 256)
	type call = frames.FileCall
	for what, c := range map[string]struct {
		verb frames.FileVerb
		call call
		want syscall.Errno
	}{
		"no verb":                    {0, call{}, syscall.EOPNOTSUPP},
		"unknown verb":               {frames.FileVerbs, call{}, syscall.EOPNOTSUPP},
		"last verb":                  {255, call{}, syscall.EOPNOTSUPP},
		"unknown handle":             {frames.FileRead, call{Handle: 1 << 60, Size: 1}, syscall.EBADF},
		"handle of another session":  {frames.FileRead, call{Handle: theirs, Size: 1}, syscall.EBADF},
		"its close":                  {frames.FileClose, call{Handle: theirs}, syscall.EBADF},
		"its truncation":             {frames.FileChange, call{Handle: theirs, Data: frames.AppendChange(nil, &frames.Change{Set: frames.ChangeSize})}, syscall.EBADF},
		"no handle":                  {frames.FileSync, call{}, syscall.EBADF},
		"too much at once":           {frames.FileRead, call{Handle: mine, Size: frames.MaxFileData + 1}, syscall.EMSGSIZE},
		"far too much at once":       {frames.FileRead, call{Handle: mine, Size: 1<<64 - 1}, syscall.EMSGSIZE},
		"memory without a client":    {frames.FileRead, call{Handle: mine, Size: 1, Memory: 7}, syscall.EOPNOTSUPP},
		"beyond the end":             {frames.FileRead, call{Handle: mine, Size: 9, Off: 1<<64 - 5}, 0},
		"a write there":              {frames.FileWrite, call{Handle: mine, Data: []byte("x"), Off: 1<<64 - 1}, syscall.EFBIG},
		"a listing of a file":        {frames.FileList, call{Handle: mine}, syscall.ENOTDIR},
		"no name":                    {frames.FileStat, call{}, syscall.EINVAL},
		"parent":                     {frames.FileStat, call{Name: "sim0/../sim1"}, syscall.EINVAL},
		"parent of the root":         {frames.FileOpen, call{Name: "../etc/passwd"}, syscall.EINVAL},
		"absolute":                   {frames.FileOpen, call{Name: "/etc/passwd"}, syscall.EINVAL},
		"doubled slash":              {frames.FileStat, call{Name: "sim0//a"}, syscall.EINVAL},
		"trailing slash":             {frames.FileStat, call{Name: "sim0/"}, syscall.EINVAL},
		"dot":                        {frames.FileStat, call{Name: "sim0/./a"}, syscall.EINVAL},
		"zero byte":                  {frames.FileOpen, call{Name: "sim0/a\x00b", Flags: newFile}, syscall.EINVAL},
		"long name":                  {frames.FileOpen, call{Name: "sim0/" + long, Flags: newFile}, syscall.ENAMETOOLONG},
		"long path":                  {frames.FileStat, call{Name: strings.Repeat("sim0/", 819) + "x"}, syscall.ENAMETOOLONG},
		"unknown flags of an open":   {frames.FileOpen, call{Name: "sim0/a", Flags: 1 << 30}, syscall.EINVAL},
		"two accesses":               {frames.FileOpen, call{Name: "sim0/a", Flags: 3}, syscall.EINVAL},
		"unknown flags of a remove":  {frames.FileRemove, call{Name: "sim0/a", Flags: 3}, syscall.EINVAL},
		"unknown flags of a rename":  {frames.FileRename, call{Name: "sim0/a", Other: "sim0/c", Flags: 4}, syscall.EINVAL},
		"no change":                  {frames.FileChange, call{Name: "sim0/a"}, syscall.EINVAL},
		"half a change":              {frames.FileChange, call{Name: "sim0/a", Data: make([]byte, 47)}, syscall.EINVAL},
		"unknown change":             {frames.FileChange, call{Name: "sim0/a", Data: frames.AppendChange(nil, &frames.Change{Set: 1 << 31})}, syscall.EINVAL},
		"wrong nanoseconds":          {frames.FileChange, call{Name: "sim0/a", Data: frames.AppendChange(nil, &frames.Change{Atime: syscall.Timespec{Nsec: 1e9}})}, syscall.EINVAL},
		"a mode by a handle":         {frames.FileChange, call{Handle: mine, Data: frames.AppendChange(nil, &frames.Change{Set: frames.ChangeMode})}, syscall.EINVAL},
		"size of a directory":        {frames.FileChange, call{Name: "sim0", Data: frames.AppendChange(nil, &frames.Change{Set: frames.ChangeSize})}, syscall.EISDIR},
		"huge size":                  {frames.FileChange, call{Name: "sim0/a", Data: frames.AppendChange(nil, &frames.Change{Set: frames.ChangeSize, Size: 1 << 63})}, syscall.EFBIG},
		"attribute without a name":   {frames.FileGetAttribute, call{Name: "sim0/a"}, syscall.ERANGE},
		"long attribute":             {frames.FileSetAttribute, call{Name: "sim0/a", Other: "user." + long}, syscall.ERANGE},
		"attribute with a zero byte": {frames.FileSetAttribute, call{Name: "sim0/a", Other: "user.a\x00"}, syscall.EINVAL},
		"large attribute":            {frames.FileSetAttribute, call{Name: "sim0/a", Other: "user.a", Data: make([]byte, metadata.MaxXattr+1)}, syscall.E2BIG},
		"link without a target":      {frames.FileSymlink, call{Name: "sim0/l"}, syscall.ENOENT},
		"link with a long target":    {frames.FileSymlink, call{Name: "sim0/l", Other: strings.Repeat("x", 4096)}, syscall.ENAMETOOLONG},
		"the root":                   {frames.FileRemove, call{Name: "."}, syscall.EBUSY},
		"a device":                   {frames.FileRemove, call{Name: "sim0"}, syscall.EACCES},
		"a new device":               {frames.FileMkdir, call{Name: "sim9"}, syscall.EACCES},
		"copy to itself":             {frames.FileCopy, call{Name: "sim0/a", Other: "sim0/a"}, syscall.EINVAL},
		"a file of another user":     {frames.FileOpen, call{Name: ".hmcfs/version", Flags: syscall.O_WRONLY}, syscall.EACCES},
	} {
		if _, got := f.asked(c.verb, c.call); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
	if _, got := f.asked(frames.FileSync, call{Handle: mine}); got != 0 {
		t.Errorf("the session did not go on: %v", got)
	}
}

// TestGarbageFileCalls sends bodies of random bytes with each verb, and one that is too large.
func TestGarbageFileCalls(t *testing.T) {
	r := newFilesRig(t, owner+1)
	f := openFrames(t, r.socket)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		body := make([]byte, rng.IntN(200))
		for k := range body {
			if rng.IntN(2) == 0 {
				body[k] = byte(rng.Uint32())
			}
		}
		b := append(frames.Begin(nil, frames.KindFile, uint8(i%int(frames.FileVerbs)), 1), body...)
		fatal(t, frames.Finish(b, 0))
		f.write(b)
		f.answered()
	}
	large := append(frames.Begin(nil, frames.KindFile, uint8(frames.FileWrite), 2), make([]byte, frames.MaxFileCall+1)...)
	fatal(t, frames.Finish(large, 0))
	go f.conn.Write(large) //nolint:errcheck // the answer shows whether it arrived
	if id, a := f.answered(); id != 2 || syscall.Errno(a.Errno) != syscall.EMSGSIZE {
		t.Errorf("call %d is answered %+v", id, a)
	}
	f.opened("sim0/after")
}

// TestLinksStayInside follows links that leave the tree, or never end.
func TestLinksStayInside(t *testing.T) {
	r := newFilesRig(t, owner)
	files := r.open(t).Files()
	fatal(t, files.WriteFile("sim0/a", []byte("x"), 0o600))
	for target, want := range map[string]syscall.Errno{
		"/etc/passwd": syscall.EXDEV, "../../etc/passwd": syscall.EXDEV, "loop": syscall.ELOOP, "gone": syscall.ENOENT,
		"a/": 0, "../sim1/../sim0/./a": 0, "../..": syscall.EXDEV, strings.Repeat("../sim0/", 100) + "a": 0,
	} {
		fatal(t, files.Symlink(target, "sim0/loop"))
		_, err := files.ReadFile("sim0/loop")
		if got, _ := errors.AsType[syscall.Errno](err); got != want {
			t.Errorf("%s: %v, want %v", target, err, want)
		}
		fatal(t, files.Remove("sim0/loop"))
	}
}

// TestFileUsedWhileClosed uses handles in many calls at once while they are closed.
func TestFileUsedWhileClosed(t *testing.T) {
	r := newFilesRig(t, owner+1)
	files := r.open(t).Files()
	for range 30 {
		f, err := files.Create("sim0/a", 0o600)
		fatal(t, err)
		var users sync.WaitGroup
		for i := range 8 {
			users.Go(func() {
				p := make([]byte, 1000)
				for {
					_, fault := f.WriteAt(p, int64(i))
					if fault == nil {
						_, fault = f.ReadAt(p, 0)
					}
					if errors.Is(fault, syscall.EBADF) {
						return
					}
					if fault != nil && !errors.Is(fault, io.EOF) {
						t.Errorf("%v", fault)
						return
					}
				}
			})
		}
		fatal(t, f.Close())
		users.Wait()
		if err = f.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("closed again: %v", err)
		}
	}
}

// TestFilesEndWithSession ends sessions in various ways while they have files open: a file that
// nothing has open can be moved to another device.
func TestFilesEndWithSession(t *testing.T) {
	r := newFilesRig(t, owner+1)
	watcher := r.open(t).Files()
	for name, end := range map[string]func(f *framesByHand, handle uint64){
		"closed":     func(f *framesByHand, _ uint64) { fatal(t, f.conn.Close()) },
		"half":       func(f *framesByHand, _ uint64) { fatal(t, f.conn.CloseWrite()) },
		"bad header": func(f *framesByHand, _ uint64) { f.write(bytes.Repeat([]byte{0xff}, frames.HeaderSize)) },
		"in a write": func(f *framesByHand, handle uint64) {
			b, err := frames.AppendFileCall(frames.Begin(nil, frames.KindFile, uint8(frames.FileWrite), 9), &frames.FileCall{Handle: handle})
			fatal(t, err)
			b = append(b, kit.Bytes(3, 0, 1<<20)...)
			fatal(t, frames.Finish(b, 0))
			f.write(b[:len(b)/2])
			fatal(t, f.conn.Close())
		},
	} {
		f := openFrames(t, r.socket)
		handle := f.opened("sim0/a")
		if _, fault := f.asked(frames.FileWrite, frames.FileCall{Handle: handle, Data: kit.Bytes(2, 0, 5000)}); fault != 0 {
			t.Fatal(fault)
		}
		if err := watcher.Rename("sim0/a", "sim1/a"); !errors.Is(err, syscall.EXDEV) {
			t.Errorf("%s: an open file was moved: %v", name, err)
		}
		end(f, handle)
		kit.Eventually(t, sessionPatience, func() error { return watcher.Rename("sim0/a", "sim1/a") })
		data, err := watcher.ReadFile("sim1/a")
		if err != nil || len(data) != 5000 || kit.DiffAt(data, 2, 0) >= 0 {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
		fatal(t, watcher.Remove("sim1/a"))
	}
}

// TestFileCallsAreBounded asks for more memory, and more open files, than a user may have.
func TestFileCallsAreBounded(t *testing.T) {
	r := newFilesRig(t, owner+1)
	f := openFrames(t, r.socket)
	handle := f.opened("sim0/a")
	if _, fault := f.asked(frames.FileWrite, frames.FileCall{Handle: handle, Data: kit.Bytes(2, 0, frames.MaxFileData)}); fault != 0 {
		t.Fatal(fault)
	}
	const calls = 100
	var all []byte
	for id := uint64(1); id <= calls; id++ {
		all = append(all, f.fileFrame(frames.FileRead, id, frames.FileCall{Handle: handle, Size: frames.MaxFileData})...)
	}
	go f.conn.Write(all) //nolint:errcheck // the answers show whether they arrived
	// The answers stay unread until the memory of the user is exhausted.
	kit.Eventually(t, sessionPatience, func() bool {
		return slices.ContainsFunc(r.refusals.Limits(), func(l metadata.LimitStatus) bool { return l.Name == "user-call-bytes" && l.Refused > 0 })
	})
	copied := `{"copy":"sim1/a"}`
	if status, said := r.byHTTP(t, "POST", "sim0/a", []byte(copied)); status != 409 || !strings.Contains(said, `"ebusy"`) {
		t.Errorf("a request over HTTP is answered with %d, %.200q", status, said)
	}
	var served, busy int
	for range calls {
		switch _, a := f.answered(); {
		case a.Errno == 0 && len(a.Data) == frames.MaxFileData && kit.DiffAt(a.Data, 2, 0) < 0:
			served++
		case syscall.Errno(a.Errno) == syscall.EBUSY:
			busy++
		default:
			t.Errorf("%+v", a.Errno)
		}
	}
	if served == 0 || busy == 0 || served+busy != calls {
		t.Errorf("%d served, %d refused", served, busy)
	}
	if status, said := r.byHTTP(t, "POST", "sim0/a", []byte(copied)); status != 200 {
		t.Errorf("a request over HTTP is answered with %d, %.200q", status, said)
	}
	open, fault := 1, syscall.Errno(0)
	for ; fault == 0 && open < 5000; open++ {
		_, fault = f.asked(frames.FileOpen, frames.FileCall{Name: "sim0/a"})
	}
	if fault != syscall.EMFILE || open != 1025 {
		t.Errorf("%d files are open, then: %v", open, fault)
	}
}

// TestFilesAreTheirUsers has a user reach for the files of another one.
func TestFilesAreTheirUsers(t *testing.T) {
	r := newFilesRig(t, owner+1)
	mine := r.open(t).Files()
	fatal(t, mine.WriteFile("sim0/a", []byte("mine"), 0o600))
	fatal(t, mine.Mkdir("sim0/closed", 0o700))
	fatal(t, mine.WriteFile("sim0/closed/b", []byte("mine"), 0o666))
	r.uid.Store(owner + 2)
	theirs := r.open(t).Files()
	for what, err := range map[string]error{
		"read":   func() error { _, err := theirs.ReadFile("sim0/a"); return err }(),
		"write":  theirs.WriteFile("sim0/a", nil, 0o600),
		"chmod":  theirs.Chmod("sim0/a", 0o666),
		"remove": theirs.Remove("sim0/a"),
		"rename": theirs.Rename("sim0/a", "sim0/b"),
		"stat":   func() error { _, err := theirs.Stat("sim0/closed/b"); return err }(),
		"list":   func() error { _, err := theirs.ReadDir("sim0/closed"); return err }(),
		"copy":   func() error { _, err := theirs.Copy(t.Context(), "sim0/a", "sim0/c"); return err }(),
		"root":   theirs.Mkdir("x", 0o777),
	} {
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if data, err := mine.ReadFile("sim0/a"); err != nil || string(data) != "mine" {
		t.Errorf("%q, %v", data, err)
	}
}

// byHTTP makes a request about a file as curl does.
func (r *keyedRig) byHTTP(t *testing.T, method, name string, body []byte) (status int, said string) {
	t.Helper()
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", r.socket)
	}}}
	q, err := http.NewRequestWithContext(t.Context(), method, "http://h"+adminapi.PathFiles+name, bytes.NewReader(body))
	fatal(t, err)
	resp, err := web.Do(q)
	fatal(t, err)
	data, err := io.ReadAll(resp.Body)
	fatal(t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, string(data)
}

// TestFilesByHTTP makes each request.
func TestFilesByHTTP(t *testing.T) {
	r := newFilesRig(t, owner)
	big := kit.Bytes(5, 0, 700_001)
	for _, c := range []struct {
		method, name string
		body         []byte
		status       int
		text         string
	}{
		{"PUT", "sim0/a", big, 200, `{"bytes":700001}`},
		{"GET", "sim0/a", nil, 200, string(big)},
		{"GET", "sim0/a?offset=5&size=300000", nil, 200, string(big[5:300005])},
		{"PUT", "sim0/a?offset=700001", []byte("tail"), 200, `{"bytes":4}`},
		{"GET", "sim0/a?offset=700000", nil, 200, string(big[700000:]) + "tail"},
		{"GET", "sim0/a?stat=1", nil, 200, `"type":"file"`},
		{"POST", "sim0/d", []byte(`{"mkdir":"750"}`), 200, `{}`},
		{"POST", "sim0/a", []byte(`{"copy":"sim1/b"}`), 200, `{"bytes":700005}`},
		{"POST", "sim1/b", []byte(`{"rename":"sim0/d/b"}`), 200, `{}`},
		{"POST", "sim1/b", []byte(`{"rename":"a","copy":"b"}`), 400, `"einval"`},
		{"POST", "sim1/b", []byte(`garbage`), 400, `"einval"`},
		{"GET", "sim0/d", nil, 200, `"name":"b","type":"file"`},
		{"GET", "", nil, 200, `"name":"sim1","type":"dir"`},
		{"PUT", "sim0/a?attribute=user.x", []byte("value"), 200, `{}`},
		{"GET", "sim0/a?attribute=user.x", nil, 200, `value`},
		{"GET", "sim0/a?attributes=1", nil, 200, `"user.x"`},
		{"DELETE", "sim0/a?attribute=user.x", nil, 200, `{}`},
		{"GET", "sim0/a?attribute=user.x", nil, 400, `"enodata"`},
		{"DELETE", "sim0/d", nil, 400, `"enotempty"`},
		{"DELETE", "sim0/a", nil, 200, `{}`},
		{"GET", "sim0/a", nil, 404, `"enoent"`},
		{"GET", "sim0/a%00", nil, 400, `"einval"`},
		{"PUT", "sim9/a", nil, 404, `"enoent"`},
		{"GET", "sim0/d/b?offset=x", nil, 400, `"einval"`},
		{"GET", strings.Repeat("x", 300), nil, 400, `"enametoolong"`},
		{"PATCH", "sim0/d/b", nil, 404, ``},
	} {
		status, said := r.byHTTP(t, c.method, c.name, c.body)
		same := strings.Contains(said, c.text)
		if len(c.text) > 1000 {
			same = said == c.text
		}
		if status != c.status || !same {
			t.Errorf("%s %.40s: %d %.200q", c.method, c.name, status, said)
		}
	}
}

// TestFilesAllocateLittle reads and writes 1 MiB, which must not need as much memory each time.
func TestFilesAllocateLittle(t *testing.T) {
	r := newFilesRig(t, owner)
	f, err := r.open(t).Files().Create("sim0/a", 0o600)
	fatal(t, err)
	p := kit.Bytes(1, 0, 1<<20)
	once := func() {
		if _, err := f.WriteAt(p, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	once()
	if n := testing.AllocsPerRun(50, once); n > 100 {
		t.Errorf("%v allocations, on both sides", n)
	}
	if kit.DiffAt(p, 1, 0) >= 0 {
		t.Error("other bytes were read")
	}
	fatal(t, f.Close())
}

// TestFilesOfManyAtOnce has sessions create, move, link and remove the same names at once: each call
// succeeds or has an errno of the race, and nothing is left open.
func TestFilesOfManyAtOnce(t *testing.T) {
	r := newFilesRig(t, owner)
	setup := r.open(t).Files()
	for _, dir := range []string{"sim0/a", "sim0/b", "sim1/a"} {
		fatal(t, setup.Mkdir(dir, 0o777))
	}
	expected := []error{
		syscall.EPERM, // a link to a directory
		syscall.ENOENT, syscall.EEXIST, syscall.EXDEV, syscall.EBUSY, syscall.ENOTEMPTY, syscall.EISDIR, syscall.ENOTDIR, syscall.ESTALE, syscall.EINVAL,
	}
	var users sync.WaitGroup
	for seed := range uint64(4) {
		files := r.open(t).Files()
		users.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			name := func() string {
				return []string{"sim0/a/", "sim0/b/", "sim1/a/"}[rng.IntN(3)] + []string{"x", "y", "z"}[rng.IntN(3)]
			}
			for range 300 {
				var err error
				switch rng.IntN(7) {
				case 0:
					err = files.WriteFile(name(), kit.Bytes(seed, 0, 1+rng.IntN(9000)), 0o644)
				case 1:
					err = files.Rename(name(), name())
				case 2:
					err = files.Remove(name())
				case 3:
					err = files.Link(name(), name())
				case 4:
					err = files.Mkdir(name(), 0o755)
				case 5:
					_, err = files.Copy(t.Context(), name(), name())
				default:
					_, err = files.ReadFile(name())
				}
				if err != nil && !slices.ContainsFunc(expected, func(one error) bool { return errors.Is(err, one) }) {
					t.Errorf("%v", err)
				}
			}
		})
	}
	users.Wait()
	for _, dir := range []string{"sim0/a", "sim0/b", "sim1/a"} {
		entries, err := setup.ReadDir(dir)
		fatal(t, err)
		for _, e := range entries {
			if err = setup.Remove(dir + "/" + e.Name()); err != nil {
				t.Errorf("%v", err)
			}
		}
	}
	if usage, err := setup.StatFS("sim0"); err != nil || usage.Used != 0 {
		t.Errorf("%v are still used after everything was removed, %v", usage.Used, err)
	}
}

// again makes a call on files that a daemon before may have carried out.
func (f *framesByHand) again(verb frames.FileVerb, q frames.FileCall) syscall.Errno {
	f.t.Helper()
	b := f.fileFrame(verb, 1, q)
	frames.SetAgain(b)
	f.write(b)
	_, a := f.answered()
	return syscall.Errno(a.Errno)
}

// TestFileCallsAskedAgain asks calls again whose names are there: because a daemon before has carried them out, or because another user,
// or this one since, has made them.
func TestFileCallsAskedAgain(t *testing.T) {
	const user, other = owner + 1, owner + 2
	const excl = newFile | syscall.O_EXCL
	ctx := t.Context()
	make4 := func(g *hmc.Guest, as string) {
		f, err := g.Open(ctx, "sim0/file-"+as, excl, 0o644)
		fatal(t, err)
		f.Close()
		fatal(t, g.Mkdir(ctx, "sim0/dir-"+as, 0o755))
		fatal(t, g.Symlink(ctx, "target", "sim0/symlink-"+as))
		fatal(t, g.Link(ctx, "sim0/file-"+as, "sim0/link-"+as))
	}
	var files *hmc.Files
	as := func(uid uint32, do func(g *hmc.Guest)) {
		g := files.Begin(objects.Caller{UID: uid, GID: uid})
		defer g.End()
		do(g)
	}
	r := newFilesRigAfter(t, user, func(all *hmc.Files) {
		files = all
		as(user, func(g *hmc.Guest) {
			make4(g, "mine")
			fatal(t, g.SetAttribute(ctx, "sim0/file-mine", "user.a", []byte("value"), 0))
		})
		as(other, func(g *hmc.Guest) { make4(g, "others") })
	})
	as(user, func(g *hmc.Guest) { make4(g, "new") })
	f := openFrames(t, r.socket)
	for _, c := range []struct {
		verb frames.FileVerb
		q    frames.FileCall
		want syscall.Errno
	}{
		{frames.FileOpen, frames.FileCall{Name: "sim0/file-mine", Flags: excl, Mode: 0o644}, 0},
		{frames.FileOpen, frames.FileCall{Name: "sim0/file-others", Flags: excl, Mode: 0o644}, syscall.EEXIST},
		{frames.FileOpen, frames.FileCall{Name: "sim0/file-new", Flags: excl, Mode: 0o644}, syscall.EEXIST},
		{frames.FileOpen, frames.FileCall{Name: "sim0/symlink-mine", Flags: excl, Mode: 0o644}, syscall.EEXIST},
		{frames.FileOpen, frames.FileCall{Name: "sim0/file-none", Flags: excl, Mode: 0o644}, 0},
		{frames.FileMkdir, frames.FileCall{Name: "sim0/dir-mine", Mode: 0o755}, 0},
		{frames.FileMkdir, frames.FileCall{Name: "sim0/dir-others", Mode: 0o755}, syscall.EEXIST},
		{frames.FileMkdir, frames.FileCall{Name: "sim0/dir-new", Mode: 0o755}, syscall.EEXIST},
		{frames.FileMkdir, frames.FileCall{Name: "sim0/file-mine", Mode: 0o755}, syscall.EEXIST},
		{frames.FileSymlink, frames.FileCall{Name: "sim0/symlink-mine", Other: "target"}, 0},
		{frames.FileSymlink, frames.FileCall{Name: "sim0/symlink-mine", Other: "elsewhere"}, syscall.EEXIST},
		{frames.FileSymlink, frames.FileCall{Name: "sim0/symlink-others", Other: "target"}, syscall.EEXIST},
		{frames.FileSymlink, frames.FileCall{Name: "sim0/symlink-new", Other: "target"}, syscall.EEXIST},
		{frames.FileLink, frames.FileCall{Name: "sim0/file-mine", Other: "sim0/link-mine"}, 0},
		{frames.FileLink, frames.FileCall{Name: "sim0/file-mine", Other: "sim0/link-others"}, syscall.EEXIST},
		{frames.FileLink, frames.FileCall{Name: "sim0/file-mine", Other: "sim0/link-new"}, syscall.EEXIST},
		{frames.FileRename, frames.FileCall{Name: "sim0/gone", Other: "sim0/link-new"}, 0},
		{frames.FileRename, frames.FileCall{Name: "sim0/gone", Other: "sim0/never"}, syscall.ENOENT},
		{frames.FileSetAttribute, frames.FileCall{Name: "sim0/file-mine", Other: "user.a", Data: []byte("value"), Flags: frames.FileAttributeCreate}, 0},
		{frames.FileSetAttribute, frames.FileCall{Name: "sim0/file-mine", Other: "user.a", Data: []byte("else"), Flags: frames.FileAttributeCreate}, syscall.EEXIST},
		{frames.FileRemoveAttribute, frames.FileCall{Name: "sim0/file-mine", Other: "user.none"}, 0},
		{frames.FileRemove, frames.FileCall{Name: "sim0/gone"}, 0},
		{frames.FileClose, frames.FileCall{Handle: 1 << 40}, 0},
	} {
		if got := f.again(c.verb, c.q); got != c.want {
			t.Errorf("verb %d of %s, %s%s: %v, want %v", c.verb, c.q.Name, c.q.Other, c.q.Data, got, c.want)
		}
	}
}
