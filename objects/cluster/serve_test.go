package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

func TestHelloFirst(t *testing.T) {
	r := newServerRig(t)
	ask := &proto.InoAsk{Ino: uint64(metadata.RootIno)}
	if err := r.put(from(1), proto.MethodAttr, ask, &proto.Attr{}); !errors.Is(err, errNoHello) {
		t.Errorf("without a hello: %v", err)
	}
	if err := r.put(from(1), proto.MethodSync, &proto.HandleAsk{}, nil); !errors.Is(err, errNoHello) {
		t.Errorf("sync without a hello: %v", err)
	}
	for name, c := range map[string]struct {
		hello proto.Hello
		want  error
	}{
		"another version":  {proto.Hello{Version: proto.Version + 1, Cluster: "test", Record: []byte(`{"name":"a"}`)}, ErrVersion},
		"another cluster":  {proto.Hello{Version: proto.Version, Cluster: "prod", Record: []byte(`{"name":"a"}`)}, ErrVersion},
		"no record":        {proto.Hello{Version: proto.Version, Cluster: "test", Record: []byte(`{`)}, ErrVersion},
		"no name":          {proto.Hello{Version: proto.Version, Cluster: "test", Record: []byte(`{"name":"../a"}`)}, ErrVersion},
		"somebody's name":  {proto.Hello{Version: proto.Version, Cluster: "test", Record: []byte(`{"name":"c"}`)}, ErrDenied},
		"a record of none": {proto.Hello{Version: proto.Version, Cluster: "test"}, ErrVersion},
	} {
		if err := r.put(from(1), proto.MethodHello, &c.hello, &proto.Welcome{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if len(r.met) > 0 {
		t.Errorf("met %+v", r.met)
	}
	who := r.hello(1)
	r.hello(1) // repeating it is harmless
	if len(r.met) != 2 || r.met[0].Name != "a" || r.met[0].Epoch != 7 {
		t.Errorf("met %+v", r.met)
	}
	r.must(who, proto.MethodAttr, ask, &proto.Attr{})
	// Another session has not said hello.
	if err := r.put(from(2), proto.MethodAttr, ask, &proto.Attr{}); !errors.Is(err, errNoHello) {
		t.Errorf("in another session: %v", err)
	}
	r.server.ended(who)
	r.server.ended(who)
	if err := r.put(who, proto.MethodAttr, ask, &proto.Attr{}); !errors.Is(err, errNoHello) {
		t.Errorf("after its end: %v", err)
	}
}

// TestHandlesBelongToASession: handles of another session, or of an earlier one, can't be
// used, and their numbers refer to nothing else.
func TestHandlesBelongToASession(t *testing.T) {
	r := newServerRig(t)
	a := r.file("a")
	one, two := r.hello(1), r.hello(2)
	h := r.open(one, a.Ino, proto.AccessRead|proto.AccessWrite)
	if other := r.open(two, a.Ino, proto.AccessRead); other == h {
		t.Errorf("two sessions have handle %#x", h)
	}
	seek := func(n uint64) *proto.SeekAsk { return &proto.SeekAsk{Handle: n, Hole: true} }
	if err := r.put(two, proto.MethodSeek, seek(h), &proto.SeekAnswer{}); !errors.Is(err, ErrStale) {
		t.Errorf("a handle of another session: %v", err)
	}
	if err := r.put(one, proto.MethodSeek, seek(0), &proto.SeekAnswer{}); !errors.Is(err, ErrStale) {
		t.Errorf("handle 0: %v", err)
	}
	r.must(one, proto.MethodAllocate, &proto.AllocateAsk{Handle: h, N: 100}, &proto.Attr{})
	r.must(one, proto.MethodSeek, seek(h), &proto.SeekAnswer{})
	r.must(one, proto.MethodSync, &proto.HandleAsk{Handle: h}, nil)
	var after proto.Attr
	r.must(one, proto.MethodClose, &proto.HandleAsk{Handle: h}, &after)
	if after.Size != 100 || after.Ino != uint64(a.Ino) {
		t.Errorf("after its close: %+v", after)
	}
	if err := r.put(one, proto.MethodClose, &proto.HandleAsk{Handle: h}, &proto.Attr{}); !errors.Is(err, ErrStale) {
		t.Errorf("closed twice: %v", err)
	}
	read := r.open(one, a.Ino, proto.AccessRead)
	if err := r.put(one, proto.MethodAllocate, &proto.AllocateAsk{Handle: read, N: 1}, &proto.Attr{}); !errors.Is(err, ErrDenied) {
		t.Errorf("a change by a handle to read: %v", err)
	}
}

// TestEndOfASession: the end of a session closes its files, and frees the memory of those
// without a name; the rig checks that at the end.
func TestEndOfASession(t *testing.T) {
	r := newServerRig(t)
	a := r.file("a")
	who := r.hello(1)
	h := r.open(who, a.Ino, proto.AccessRead|proto.AccessWrite)
	r.must(who, proto.MethodAllocate, &proto.AllocateAsk{Handle: h, N: 1 << 20}, &proto.Attr{})
	r.must(who, proto.MethodRemove, &proto.RemoveAsk{Dir: uint64(r.top()), Name: "a"}, &proto.Invalid{})
	var attr proto.Attr
	r.must(who, proto.MethodAttr, &proto.InoAsk{Ino: uint64(a.Ino)}, &attr)
	if attr.Nlink != 0 || attr.Size != 1<<20 {
		t.Errorf("an open file without a name: %+v", attr)
	}
	r.server.ended(who)
	r.server.work.Wait()
	if _, err := r.store.Attr(t.Context(), a.Ino); !isGone(err) {
		t.Errorf("after the end of the session: %v", err)
	}
}

func TestCloseOfAFileWithoutAName(t *testing.T) {
	r := newServerRig(t)
	a := r.file("a")
	who := r.hello(1)
	h := r.open(who, a.Ino, proto.AccessWrite)
	r.must(who, proto.MethodRemove, &proto.RemoveAsk{Dir: uint64(r.top()), Name: "a"}, &proto.Invalid{})
	var after proto.Attr
	r.must(who, proto.MethodClose, &proto.HandleAsk{Handle: h}, &after)
	if _, err := attrFromProto(&after); err != nil || after.Nlink != 0 || after.Keep != 0 {
		t.Errorf("after the last close: %+v, %v", after, err)
	}
}

func TestOpen(t *testing.T) {
	r := newServerRig(t)
	who, a := r.hello(1), r.file("a")
	for name, c := range map[string]struct {
		ask  proto.OpenAsk
		want error
	}{
		"a directory":        {proto.OpenAsk{Ino: uint64(r.top()), Access: proto.AccessRead}, metadata.ErrIsDir},
		"what is not there":  {proto.OpenAsk{Ino: 1 << 40, Access: proto.AccessRead}, ErrStale},
		"another generation": {proto.OpenAsk{Ino: uint64(a.Ino), Gen: uint64(a.Gen) + 1, Access: proto.AccessRead}, ErrStale},
		"its generation":     {proto.OpenAsk{Ino: uint64(a.Ino), Gen: uint64(a.Gen), Access: proto.AccessRead}, nil},
		"for nothing":        {proto.OpenAsk{Ino: uint64(a.Ino)}, objects.ErrInvalid},
		"for something else": {proto.OpenAsk{Ino: uint64(a.Ino), Access: 4}, objects.ErrInvalid},
	} {
		if err := r.put(who, proto.MethodOpen, &c.ask, &proto.OpenAnswer{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestPublishedIsNotInTheTree: a publication is received by its key, and can't be read by its
// number without being received.
func TestPublishedIsNotInTheTree(t *testing.T) {
	r := newServerRig(t)
	who, a := r.hello(1), r.file("a")
	top := r.top()
	if err := r.store.Rename(t.Context(), metadata.Rename{From: top, Name: "a", To: metadata.PublishIno, NewName: "k"}); err != nil {
		t.Fatal(err)
	}
	publish := uint64(metadata.PublishIno)
	for name, put := range map[string]func() error{
		"look up": func() error {
			return r.put(who, proto.MethodLookup, &proto.LookupAsk{Dir: publish, Name: "k"}, &proto.Attr{})
		},
		"list": func() error {
			return r.put(who, proto.MethodReadDir, &proto.ReadDirAsk{Dir: publish}, &proto.ReadDirAnswer{})
		},
		"attributes": func() error {
			return r.put(who, proto.MethodAttr, &proto.InoAsk{Ino: uint64(a.Ino)}, &proto.Attr{})
		},
		"open": func() error {
			return r.put(who, proto.MethodOpen, &proto.OpenAsk{Ino: uint64(a.Ino), Access: proto.AccessRead}, &proto.OpenAnswer{})
		},
		"remove": func() error {
			return r.put(who, proto.MethodRemove, &proto.RemoveAsk{Dir: publish, Name: "k"}, nil)
		},
		"rename out": func() error {
			return r.put(who, proto.MethodRename, &proto.RenameAsk{From: publish, Name: "k", To: uint64(top), NewName: "x"}, nil)
		},
		"rename in": func() error {
			return r.put(who, proto.MethodRename, &proto.RenameAsk{From: uint64(top), Name: "b", To: publish, NewName: "x"}, nil)
		},
		"link": func() error {
			return r.put(who, proto.MethodLink, &proto.LinkAsk{Ino: uint64(a.Ino), Dir: uint64(top), Name: "x"}, &proto.Attr{})
		},
		"an attribute": func() error {
			return r.put(who, proto.MethodGetXattr, &proto.XattrAsk{Ino: uint64(a.Ino), Name: "user.hmc.key"}, &proto.XattrAnswer{})
		},
	} {
		if err := put(); !errors.Is(err, ErrDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// list reads a directory page by page.
func (r *serverRig) list(who rpc.Caller, dir objects.Ino, limit uint32) map[string]bool {
	r.t.Helper()
	seen := map[string]bool{}
	for ask := (proto.ReadDirAsk{Dir: uint64(dir), Limit: limit}); ; {
		var page proto.ReadDirAnswer
		r.must(who, proto.MethodReadDir, &ask, &page)
		for _, e := range page.Entries {
			if seen[e.Name] || e.Attr.Ino != e.Ino {
				r.t.Fatalf("limit %d: %q twice, or with the attributes of %d", limit, e.Name, e.Attr.Ino)
			}
			seen[e.Name] = true
			ask.Cookie = e.Cookie
		}
		if page.End {
			return seen
		}
		if len(page.Entries) == 0 {
			r.t.Fatal("an empty page that is not the last one")
		}
	}
}

// TestPages lists directories of all kinds of entries in pages that fit an answer, without
// omissions.
func TestPages(t *testing.T) {
	r := newServerRig(t)
	who, top := r.hello(1), r.top()
	want := map[string]bool{}
	for i := range 1500 {
		name := fmt.Sprintf("%04d-%s", i, strings.Repeat("n", 200))
		n := metadata.Node{Mode: metadata.TypeSymlink | 0o777, Target: strings.Repeat("t", 4000)}
		if i%2 == 0 {
			n = metadata.Node{Mode: metadata.TypeRegular | 0o600}
		}
		if _, err := r.store.Create(t.Context(), top, name, n); err != nil {
			t.Fatal(err)
		}
		want[name] = true
	}
	for _, limit := range []uint32{0, 7, 2000, 1 << 31} {
		if seen := r.list(who, top, limit); len(seen) != len(want) {
			t.Errorf("limit %d: %d entries", limit, len(seen))
		}
	}
	var root proto.ReadDirAnswer
	r.must(who, proto.MethodReadDir, &proto.ReadDirAsk{Dir: uint64(metadata.RootIno)}, &root)
	if len(root.Entries) != 1 || root.Entries[0].Name != "sim0" {
		t.Errorf("the root has %+v", root.Entries)
	}
}

// TestTenThousandEntries sends the requests of `ls -l`.
func TestTenThousandEntries(t *testing.T) {
	r := newServerRig(t)
	who, top := r.hello(1), r.top()
	for i := range 10_000 {
		if _, err := r.store.Create(t.Context(), top, fmt.Sprintf("model-%05d.safetensors", i), metadata.Node{Mode: metadata.TypeRegular | 0o600}); err != nil {
			t.Fatal(err)
		}
	}
	questions, entries := 0, 0
	for ask := (proto.ReadDirAsk{Dir: uint64(top), Limit: 2000}); ; {
		var page proto.ReadDirAnswer
		r.must(who, proto.MethodReadDir, &ask, &page)
		questions++
		entries += len(page.Entries)
		if page.End {
			break
		}
		ask.Cookie = page.Entries[len(page.Entries)-1].Cookie
	}
	if entries != 10_000 || questions > 6 {
		t.Errorf("%d entries by %d questions", entries, questions)
	}
}

// TestNamesWithoutTheRest: a user that may read a directory but not search it sees only names.
func TestNamesWithoutTheRest(t *testing.T) {
	r := newServerRig(t)
	who := r.hello(1)
	dir, err := r.store.Create(t.Context(), r.top(), "d", metadata.Node{Mode: metadata.TypeDir | 0o744})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = r.store.Create(t.Context(), dir.Ino, "a", metadata.Node{Mode: metadata.TypeRegular | 0o644}); err != nil {
		t.Fatal(err)
	}
	var page proto.ReadDirAnswer
	r.must(who, proto.MethodReadDir, &proto.ReadDirAsk{Cred: proto.Cred{UID: 5, GID: 5}, Dir: uint64(dir.Ino)}, &page)
	if len(page.Entries) != 1 || page.Entries[0].Attr.Ino != 0 || page.Entries[0].Type != uint32(metadata.TypeRegular) {
		t.Errorf("%+v", page)
	}
}

// TestServedIsTold: changes by others here are reported to our own kernel's side.
func TestServedIsTold(t *testing.T) {
	r := newServerRig(t)
	who, top := r.hello(1), uint64(r.top())
	var a proto.Attr
	var old proto.Invalid
	for _, step := range []struct {
		name string
		run  func()
		ino  bool
		dir  bool
	}{
		{"create", func() {
			r.must(who, proto.MethodCreate, &proto.CreateAsk{Dir: top, Name: "a", Mode: uint32(metadata.TypeRegular) | 0o644}, &a)
		}, false, true},
		{"set", func() {
			r.must(who, proto.MethodSetAttr, &proto.SetAttrAsk{Ino: a.Ino, Set: proto.SetMode, Mode: 0o600}, &a)
		}, true, false},
		{"attribute", func() {
			r.must(who, proto.MethodSetXattr, &proto.XattrAsk{Ino: a.Ino, Name: "user.a"}, nil)
		}, true, false},
		{"remove attribute", func() {
			r.must(who, proto.MethodRemoveXattr, &proto.XattrAsk{Ino: a.Ino, Name: "user.a"}, nil)
		}, true, false},
		{"allocate", func() {
			h := r.open(who, objects.Ino(a.Ino), proto.AccessWrite)
			r.must(who, proto.MethodAllocate, &proto.AllocateAsk{Handle: h, N: 5}, &proto.Attr{})
			r.must(who, proto.MethodClose, &proto.HandleAsk{Handle: h}, &proto.Attr{})
		}, true, false},
		{"link", func() {
			r.must(who, proto.MethodLink, &proto.LinkAsk{Ino: a.Ino, Dir: top, Name: "b"}, &proto.Attr{})
		}, true, true},
		{"rename", func() {
			r.must(who, proto.MethodRename, &proto.RenameAsk{From: top, Name: "b", To: top, NewName: "c"}, &old)
		}, true, true},
		{"remove", func() {
			if want := []uint64{a.Ino}; !slices.Equal(old.Inos, want) {
				t.Errorf("a rename outdates %v, want %v", old.Inos, want)
			}
			r.must(who, proto.MethodRemove, &proto.RemoveAsk{Dir: top, Name: "c"}, &proto.Invalid{})
		}, true, true},
	} {
		r.served = nil
		step.run()
		ino, dir := false, false
		for _, n := range r.served {
			ino = ino || n.Ino == objects.Ino(a.Ino)
			dir = dir || n.Dir == objects.Ino(top)
		}
		if ino != step.ino || dir != step.dir {
			t.Errorf("%s: told %+v", step.name, r.served)
		}
	}
}

// TestTheRootIsHmcfss: not even root changes what belongs to hmcfs.
func TestTheRootIsHmcfss(t *testing.T) {
	r := newServerRig(t)
	who, root := r.hello(1), uint64(metadata.RootIno)
	for name, put := range map[string]func() error{
		"mode": func() error {
			return r.put(who, proto.MethodSetAttr, &proto.SetAttrAsk{Ino: root, Set: proto.SetMode, Mode: 0o777}, &proto.Attr{})
		},
		"attribute": func() error {
			return r.put(who, proto.MethodSetXattr, &proto.XattrAsk{Ino: root, Name: "user.a"}, nil)
		},
		"no attribute": func() error {
			return r.put(who, proto.MethodRemoveXattr, &proto.XattrAsk{Ino: root, Name: "user.a"}, nil)
		},
		"create": func() error {
			return r.put(who, proto.MethodCreate, &proto.CreateAsk{Dir: root, Name: "x", Mode: 0o40755}, &proto.Attr{})
		},
		"remove": func() error {
			return r.put(who, proto.MethodRemove, &proto.RemoveAsk{Dir: root, Name: "sim0", Folder: true}, nil)
		},
		"rename": func() error {
			return r.put(who, proto.MethodRename, &proto.RenameAsk{From: root, Name: "sim0", To: root, NewName: "x"}, nil)
		},
	} {
		if err := put(); !errors.Is(err, metadata.ErrPermission) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStatFS(t *testing.T) {
	r := newServerRig(t)
	who := r.hello(1)
	var device, all proto.StatFSAnswer
	r.must(who, proto.MethodStatFS, &proto.InoAsk{Ino: uint64(r.top())}, &device)
	r.must(who, proto.MethodStatFS, &proto.InoAsk{Ino: uint64(metadata.RootIno)}, &all)
	if device.Device != "sim0" || device.Total == 0 || all.Device != "" || all.Total != device.Total {
		t.Errorf("%+v, %+v", device, all)
	}
}

// TestManyHandles: a session can't take all of the daemon's memory.
func TestManyHandles(t *testing.T) {
	r := newServerRig(t)
	who, a := r.hello(1), r.file("a")
	g, err := r.server.session(who)
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.handles = make(map[uint64]*handle, maxHandles)
	for i := range uint64(maxHandles) {
		g.handles[i] = nil
	}
	g.mu.Unlock()
	err = r.put(who, proto.MethodOpen, &proto.OpenAsk{Ino: uint64(a.Ino), Access: proto.AccessRead}, &proto.OpenAnswer{})
	if err == nil || !strings.Contains(fmt.Sprint(err), "files open") {
		t.Errorf("one more than it may have: %v", err)
	}
	g.mu.Lock()
	g.handles = nil
	g.mu.Unlock()
}

// FuzzQuestions passes arbitrary input to each method: nothing breaks, and no answer exceeds
// its bound.
func FuzzQuestions(f *testing.F) {
	r := newServerRig(f)
	who := r.hello(1)
	a := r.file("a")
	h := r.open(who, a.Ino, proto.AccessRead)
	top := uint64(r.top())
	for method, body := range map[uint16]any{
		uint16(proto.MethodLookup):   &proto.LookupAsk{Dir: top, Name: "a"},
		uint16(proto.MethodAttr):     &proto.InoAsk{Ino: uint64(a.Ino)},
		uint16(proto.MethodReadDir):  &proto.ReadDirAsk{Dir: top, Limit: 5},
		uint16(proto.MethodSetAttr):  &proto.SetAttrAsk{Ino: uint64(a.Ino), Set: 255, Size: 5, Mode: 0o600},
		uint16(proto.MethodSeek):     &proto.SeekAsk{Handle: h},
		uint16(proto.MethodAllocate): &proto.AllocateAsk{Handle: h, N: 1},
		uint16(proto.MethodRename):   &proto.RenameAsk{From: top, Name: "a", To: top, NewName: "b", Flags: 2},
		uint16(proto.MethodCreate):   &proto.CreateAsk{Dir: top, Name: "x", Mode: 0o100644},
		uint16(proto.MethodHello):    &proto.Hello{Version: proto.Version, Cluster: "test", Record: []byte(`{"name":"a"}`)},
	} {
		p, err := proto.Encode(body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(method, p)
	}
	moves := map[uint16]bool{uint16(proto.MethodRead): true, uint16(proto.MethodWrite): true, uint16(proto.MethodPull): true}
	f.Fuzz(func(t *testing.T, method uint16, body []byte) {
		fn := r.ask[rpc.Method(method%32)]
		if fn == nil || moves[method%32] {
			return // there is no peer to move bytes to
		}
		answer, err := fn(t.Context(), who, body)
		if err == nil && len(answer) > 1<<20 {
			t.Errorf("method %d: %d bytes", method, len(answer))
		}
	})
}

// TestReadOnlyServer requests every change of a node that permits none. It can be read.
func TestReadOnlyServer(t *testing.T) {
	r := newServerRig(t, func(o *serverOptions) { o.ReadOnly = true })
	who, a := r.hello(1), r.file("a")
	for m, in := range map[rpc.Method]any{
		proto.MethodCreate:      &proto.CreateAsk{Dir: uint64(a.Parent), Name: "b", Mode: uint32(metadata.TypeDir)},
		proto.MethodLink:        &proto.LinkAsk{Ino: uint64(a.Ino), Dir: uint64(a.Parent), Name: "b"},
		proto.MethodRemove:      &proto.RemoveAsk{Dir: uint64(a.Parent), Name: "a"},
		proto.MethodRename:      &proto.RenameAsk{From: uint64(a.Parent), Name: "a", To: uint64(a.Parent), NewName: "b"},
		proto.MethodSetAttr:     &proto.SetAttrAsk{Ino: uint64(a.Ino)},
		proto.MethodSetXattr:    &proto.XattrAsk{Ino: uint64(a.Ino), Name: "user.x"},
		proto.MethodRemoveXattr: &proto.XattrAsk{Ino: uint64(a.Ino), Name: "user.x"},
		proto.MethodCreateOpen:  &proto.CreateOpenAsk{Access: proto.AccessRead},
		proto.MethodOpen:        &proto.OpenAsk{Ino: uint64(a.Ino), Access: proto.AccessRead | proto.AccessWrite},
		proto.MethodDropKey:     &proto.KeyAsk{Key: "k"},
		proto.MethodExpireKey:   &proto.ExpireKeyAsk{Key: "k"},
	} {
		if err := r.put(who, m, in, nil); !errors.Is(err, syscall.EROFS) {
			t.Errorf("method %#x: %v", m, err)
		}
	}
	h := r.open(who, a.Ino, proto.AccessRead)
	if err := r.put(who, proto.MethodAllocate, &proto.AllocateAsk{Handle: h, N: 100}, nil); !errors.Is(err, ErrDenied) {
		t.Errorf("allocate by a handle for reading: %v", err)
	}
}
