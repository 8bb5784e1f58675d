package fs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestHeldState compares the state of a held mount with a map, across openings.
func TestHeldState(t *testing.T) {
	s := newTestState(t)
	rng := rand.New(rand.NewPCG(1, 2))
	model, shown := map[heldKey]heldSlot{}, map[heldKey]*viewNode{}
	var last uint64
	for round := range 2000 {
		kind := heldFile + heldKind(rng.IntN(2))
		switch {
		case rng.IntN(100) == 0:
			again := reopenState(t, s)
			must(t, s.close())
			s = again
			if s.header.last != last {
				t.Fatalf("round %d: the last number is %d, want %d", round, s.header.last, last)
			}
		case rng.IntN(2) == 0:
			last++
			h := heldSlot{id: last, ino: rng.Uint64N(uint64(viewBit)), unique: rng.Uint64(), flags: rng.Uint32(), openFlags: rng.Uint32(), backing: rng.Int32(), kind: kind}
			shows := randomView(rng, &h)
			shown[heldKey{h.id, kind}] = shows
			if !s.add(h, shows) {
				t.Fatal("no room")
			}
			model[heldKey{h.id, kind}] = h
		default:
			for key := range model { // any
				s.remove(key.id, key.kind)
				delete(model, key)
				break
			}
			s.remove(last+1, kind) // unknown
		}
	}
	all := s.all()
	if len(all) != len(model) {
		t.Fatalf("%d handles, want %d", len(all), len(model))
	}
	for _, h := range all {
		if model[heldKey{h.id, h.kind}] != h {
			t.Fatalf("handle %+v, want %+v", h, model[heldKey{h.id, h.kind}])
		}
		wantShown(t, s, &h, shown[heldKey{h.id, h.kind}])
		if got, ok := s.openedBy(h.unique, h.kind); !ok || got != h {
			t.Fatalf("opened by %d is %+v, %v", h.unique, got, ok)
		}
	}
	var st unix.Stat_t
	must(t, unix.Fstat(int(s.file.Fd()), &st))
	if used := 512 * st.Blocks; used > 4<<20 {
		t.Errorf("the state of %d handles takes %d bytes", len(model), used)
	}
	s.mu.Lock()
	fresh, free := int(s.fresh), len(s.free)
	s.mu.Unlock()
	if fresh > len(model)+free {
		t.Errorf("%d slots were used for %d handles and %d free ones", fresh, len(model), free)
	}
	must(t, s.close())
}

// randomView returns what a handle shows of a view; nil for one that has something else open.
func randomView(rng *rand.Rand, h *heldSlot) *viewNode {
	if rng.IntN(2) == 0 {
		return nil
	}
	h.ino |= uint64(viewBit)
	return &viewNode{file: metadata.Ino(1 + h.id), name: fmt.Sprintf("%d.npy", h.id), path: strings.Repeat("p", rng.IntN(1200))}
}

// wantShown compares what a handle has open of a view, if it has.
func wantShown(t *testing.T, s *heldState, h *heldSlot, want *viewNode) {
	t.Helper()
	if want == nil || len(want.name)+len(want.path) > len(heldView{}.text) {
		want = &viewNode{}
	}
	if file, name, path := s.shows(h); isView(metadata.Ino(h.ino)) && (file != uint64(want.file) || name != want.name || path != want.path) {
		t.Fatalf("handle %+v shows %d %q %q, want %+v", *h, file, name, path, want)
	}
}

// TestHeldStateOfOthers opens states that this version doesn't read.
func TestHeldStateOfOthers(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, s *heldState){
		"no magic":        func(_ *testing.T, s *heldState) { s.header.magic = 0 },
		"a newer version": func(_ *testing.T, s *heldState) { s.header.version++ },
		"a shorter file":  func(t *testing.T, s *heldState) { must(t, s.file.Truncate(int64(heldSize)-4096)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			spoil(t, s)
			if _, err := openHeldState(duplicate(t, s.file)); err == nil {
				t.Error("it was opened")
			}
			must(t, errors.Join(unix.Munmap(s.bytes), s.file.Close()))
		})
	}
}

// TestResumeRefused has a keeper that lacks something, or has something else. The mount can't be continued, and what is kept stays.
func TestResumeRefused(t *testing.T) {
	for name, c := range map[string]struct {
		kept  []string
		spoil func(s *heldState)
		want  string
	}{
		"nothing":             {nil, nil, "it is not kept"},
		"no device":           {[]string{heldTable}, nil, "it is not kept"},
		"no state":            {[]string{heldDevice}, nil, "it is not kept"},
		"another version":     {[]string{heldDevice, heldTable}, func(s *heldState) { s.header.version-- }, "this hmcfs reads version"},
		"damaged":             {[]string{heldDevice, heldTable}, func(s *heldState) { s.header.magic = 1 }, "the state of the mount"},
		"no first message":    {[]string{heldDevice, heldTable}, func(s *heldState) { s.header.init = fuse.InitIn{} }, "the mount can't be continued"},
		"negotiated for less": {[]string{heldDevice, heldTable}, func(s *heldState) { s.header.flags++ }, "protocol flags"},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newRig(t), newTestState(t)
			s.header.init.Length, s.header.init.Opcode, s.header.init.Minor = initLength, opInit, 40
			if c.spoil != nil {
				c.spoil(s)
			}
			keeper := &writes{}
			device, err := os.Open("/dev/null")
			must(t, err)
			for _, name := range c.kept {
				must(t, keeper.Keep(name, map[string]*os.File{heldDevice: device, heldTable: s.file}[name]))
			}
			must(t, errors.Join(device.Close(), s.close()))
			o := r.opts
			o.Keeper = keeper
			if _, err = Resume(t.Context(), o); !errors.Is(err, ErrNotResumable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			kept, err := keeper.Kept("")
			must(t, err)
			if len(kept) != len(c.kept) {
				t.Errorf("kept are %v, want %v", kept, c.kept)
			}
			for name, f := range kept {
				must(t, errors.Join(f.Close(), keeper.Drop(name)))
			}
		})
	}
}

func newTestState(t *testing.T) *heldState {
	t.Helper()
	s, err := newHeldState(&fuse.InitIn{Major: 7}, 1, testRequest)
	must(t, err)
	return s
}

func duplicate(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	return os.NewFile(uintptr(fd), f.Name())
}

// reopenState opens the state as the next process does.
func reopenState(t *testing.T, s *heldState) *heldState {
	t.Helper()
	again, err := openHeldState(duplicate(t, s.file))
	must(t, err)
	return again
}

// heldRig is a rig whose requests can be sent again.
type heldRig struct {
	*rig
	on     *holding
	unique uint64
}

func newHeldRig(t *testing.T) *heldRig {
	r := newRig(t)
	h := &heldRig{rig: r, on: &holding{filesystem: r.filesystem, state: newTestState(t)}}
	t.Cleanup(func() { must(t, h.on.state.close()) })
	return h
}

// twice sends a request, and once more as the kernel does if the first answer was never given.
func (h *heldRig) twice(t *testing.T, what string, ino uint64, send func(in fuse.InHeader) fuse.Status) {
	t.Helper()
	h.unique += 2
	in := header(ino)
	in.Unique = h.unique
	if status := send(in); status != fuse.OK {
		t.Fatalf("%s: %v", what, status)
	}
	in.Unique |= resent
	if status := send(in); status != fuse.OK {
		t.Errorf("%s, sent again: %v", what, status)
	}
}

// TestLinksContinue has the kernel know symlinks of keys, some from several lookups: the process that follows knows
// those of which the kernel has references.
func TestLinksContinue(t *testing.T) {
	h := newHeldRig(t)
	keys := &h.otherKeys
	keys.held = h.on.state
	inos := map[string]metadata.Ino{}
	for i := range 30 {
		key := fmt.Sprintf("model/%d", i)
		for range 1 + i%3 {
			inos[key] = keys.enter(key)
		}
	}
	for i := range 30 { // one reference less of each
		keys.forget(inos[fmt.Sprintf("model/%d", i)], 1)
	}
	next := newHeldRig(t)
	must(t, next.on.state.close())
	next.on.state = reopenState(t, h.on.state)
	for range 2 { // as after two kills
		next.on.restore(t.Context())
	}
	for i := range 30 {
		key := fmt.Sprintf("model/%d", i)
		got, ok := next.otherKeys.key(inos[key])
		if want := i%3 > 0; ok != want || ok && got != key {
			t.Errorf("the symlink of %s, with %d references, is that of %q, %t", key, i%3, got, ok)
		}
		next.otherKeys.forget(inos[key], uint64(i%3))
	}
	if left := next.on.state.all(); len(left) > 0 {
		t.Errorf("%d symlinks are left that the kernel does not know", len(left))
	}
	if h.on.state.header.last != 0 {
		t.Errorf("handles are numbered from %d", h.on.state.header.last)
	}
}

// TestLinksAreBounded has the kernel know as many symlinks of keys as are recorded, and one more: the process that follows does not
// find that one, and has room for others as the kernel forgets some. Handles keep their room.
func TestLinksAreBounded(t *testing.T) {
	h := newHeldRig(t)
	keys := &h.otherKeys
	keys.held = h.on.state
	h.on.state.mu.Lock()
	h.on.state.links = mostLinks - 2 // as if there were others
	h.on.state.mu.Unlock()
	inos := []metadata.Ino{keys.enter("a"), keys.enter("b"), keys.enter("c"), keys.enter("a")}
	if !h.on.state.add(heldSlot{id: 1, ino: 2, kind: heldFile}, nil) {
		t.Error("there is no room for a handle")
	}
	recorded := func(want ...metadata.Ino) {
		t.Helper()
		var got []metadata.Ino
		for _, slot := range h.on.state.all() {
			if slot.kind == heldLink {
				got = append(got, metadata.Ino(slot.id))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("recorded are %v, want %v", got, want)
		}
	}
	recorded(inos[0], inos[1])
	keys.forget(inos[0], 1)
	keys.enter("c")
	recorded(inos[0], inos[1])
	keys.forget(inos[0], 1)
	keys.enter("c")
	recorded(inos[1], inos[2])

	next := newHeldRig(t)
	must(t, next.on.state.close())
	next.on.state = reopenState(t, h.on.state)
	next.on.state.mu.Lock()
	if next.on.state.links != 2 {
		t.Errorf("the process that follows counts %d symlinks, want 2", next.on.state.links)
	}
	next.on.state.mu.Unlock()
	next.on.state.remove(1, heldFile)
	next.on.restore(t.Context())
	in := header(uint64(inos[0])) // a program has it open
	_, status := next.on.Readlink(nil, &in)
	next.want(status, unix.ENOENT)
}

// TestTooManyHandles opens a file when no more are recorded: it is open, and the log says what it lacks.
func TestTooManyHandles(t *testing.T) {
	h := newHeldRig(t)
	core, logs := observer.New(zap.WarnLevel)
	h.on.log = zap.New(core)
	h.on.state.mu.Lock()
	h.on.state.fresh = mostHandles
	h.on.state.mu.Unlock()
	var out fuse.CreateOut
	h.want(h.on.Create(nil, &fuse.CreateIn{InHeader: header(h.root("sim0")), Mode: 0o600, Flags: unix.O_RDWR}, "file", &out), 0)
	if len(h.on.state.all()) != 0 || logs.FilterField(zap.Uint64("ino", out.NodeId)).Len() != 1 {
		t.Errorf("%d handles are recorded, and the log has %v", len(h.on.state.all()), logs.All())
	}
}

// TestSentAgain carries out each request that can't be carried out twice, and then sends it again.
func TestSentAgain(t *testing.T) {
	h := newHeldRig(t)
	dir := h.root("sim0")
	var entry, other fuse.EntryOut
	h.twice(t, "mkdir", dir, func(in fuse.InHeader) fuse.Status {
		return h.on.Mkdir(nil, &fuse.MkdirIn{InHeader: in, Mode: 0o755}, "dir", &entry)
	})
	h.twice(t, "mknod", dir, func(in fuse.InHeader) fuse.Status {
		return h.on.Mknod(nil, &fuse.MknodIn{InHeader: in, Mode: unix.S_IFIFO | 0o600}, "pipe", &other)
	})
	h.twice(t, "symlink", dir, func(in fuse.InHeader) fuse.Status { return h.on.Symlink(nil, &in, "target", "link", &other) })
	var made, again fuse.CreateOut
	h.twice(t, "create", dir, func(in fuse.InHeader) fuse.Status {
		made, again = again, fuse.CreateOut{}
		// A mode that forbids what the opening asks for.
		return h.on.Create(nil, &fuse.CreateIn{InHeader: in, Flags: unix.O_RDWR | unix.O_EXCL | unix.O_CREAT, Mode: unix.S_IFREG | 0o400}, "file", &again)
	})
	if made.NodeId == 0 || made.NodeId != again.NodeId || made.Fh != again.Fh {
		t.Errorf("created inode %d, handle %d; then %d, %d", made.NodeId, made.Fh, again.NodeId, again.Fh)
	}
	ino := again.NodeId
	h.twice(t, "link", dir, func(in fuse.InHeader) fuse.Status {
		return h.on.Link(nil, &fuse.LinkIn{InHeader: in, Oldnodeid: ino}, "second", &other)
	})
	h.twice(t, "setxattr", ino, func(in fuse.InHeader) fuse.Status {
		return h.on.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: in, Size: 5, Flags: unix.XATTR_CREATE}, "user.note", []byte("value"))
	})
	h.twice(t, "removexattr", ino, func(in fuse.InHeader) fuse.Status { return h.on.RemoveXAttr(nil, &in, "user.note") })
	h.twice(t, "rename", dir, func(in fuse.InHeader) fuse.Status {
		return h.on.Rename(nil, &fuse.RenameIn{InHeader: in, Newdir: dir}, "second", "third")
	})
	h.twice(t, "exchange", dir, func(in fuse.InHeader) fuse.Status {
		return h.on.Rename(nil, &fuse.RenameIn{InHeader: in, Newdir: dir, Flags: unix.RENAME_EXCHANGE}, "third", "pipe")
	})
	if got := h.lookup(dir, "pipe").NodeId; got != ino {
		t.Errorf("after an exchange that was sent twice the name has inode %d, want %d", got, ino)
	}
	h.twice(t, "unlink", dir, func(in fuse.InHeader) fuse.Status { return h.on.Unlink(nil, &in, "pipe") })
	h.twice(t, "rmdir", dir, func(in fuse.InHeader) fuse.Status { return h.on.Rmdir(nil, &in, "dir") })
	var first, second fuse.OpenOut
	h.twice(t, "open", ino, func(in fuse.InHeader) fuse.Status {
		first, second = second, fuse.OpenOut{}
		return h.on.Open(nil, &fuse.OpenIn{InHeader: in, Flags: unix.O_RDONLY}, &second)
	})
	if first.Fh == 0 || first != second {
		t.Errorf("opened as %+v, then as %+v", first, second)
	}
	if n := len(h.on.state.all()); n != 2 {
		t.Errorf("%d handles are recorded, want those of create and open", n)
	}
}

// TestSentAgainAsked sends requests again that were never carried out, or that others prevent: they
// have the answer that the first would have had.
func TestSentAgainAsked(t *testing.T) {
	h := newHeldRig(t)
	dir := h.root("sim0")
	mine := h.create(dir, "taken")
	again := header(dir)
	again.Unique = 1<<20 | resent
	strange := again
	strange.Uid = 7 // the inode is another user's
	var entry fuse.EntryOut
	h.want(h.on.Mkdir(nil, &fuse.MkdirIn{InHeader: again}, "taken", &entry), unix.EEXIST) // another type
	h.want(h.on.Symlink(nil, &again, "x", "taken", &entry), unix.EEXIST)
	h.want(h.on.Mknod(nil, &fuse.MknodIn{InHeader: strange, Mode: unix.S_IFREG}, "taken", &entry), unix.EEXIST)
	h.want(h.on.Link(nil, &fuse.LinkIn{InHeader: again, Oldnodeid: h.create(dir, "else").ino}, "taken", &entry), unix.EEXIST)
	h.want(h.on.Rename(nil, &fuse.RenameIn{InHeader: again, Newdir: dir, Flags: unix.RENAME_NOREPLACE}, "else", "taken"), unix.EEXIST)
	first := header(dir)
	h.want(h.on.Unlink(nil, &first, "nothing"), unix.ENOENT)
	h.want(h.on.Mkdir(nil, &fuse.MkdirIn{InHeader: first}, "taken", &entry), unix.EEXIST)
	h.ok(h.on.Rename(nil, &fuse.RenameIn{InHeader: again, Newdir: dir, Flags: unix.RENAME_EXCHANGE}, "taken", "else"))
	if h.lookup(dir, "else").NodeId != mine.ino {
		t.Error("an exchange that was not carried out before was not carried out when it was sent again")
	}
}

// TestAppendSentAgain sends an append again that was carried out, in part, or not at all.
func TestAppendSentAgain(t *testing.T) {
	for _, done := range []int{0, 3000, 5000} {
		t.Run(fmt.Sprint(done), func(t *testing.T) {
			h := newHeldRig(t)
			f := h.create(h.root("sim0"), "log")
			before, data := kit.Bytes(1, 0, 7000), kit.Bytes(2, 0, 5000)
			f.write(before)
			if done > 0 {
				f.writeAt(data[:done], 7000)
			}
			in := fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh, Offset: 7000, Size: 5000, Flags: unix.O_WRONLY | unix.O_APPEND}
			in.Unique = 2 | resent
			n, status := h.on.Write(nil, &in, data)
			h.ok(status)
			got := f.readAt(20000, 0)
			if want := append(before, data...); n != 5000 || len(got) != len(want) || kit.FirstDiff(got, want) >= 0 {
				t.Errorf("wrote %d, then there are %d bytes, different at %d", n, len(got), kit.FirstDiff(got, want))
			}
		})
	}
	t.Run("others have appended", func(t *testing.T) {
		h := newHeldRig(t)
		f := h.create(h.root("sim0"), "log")
		theirs, data := kit.Bytes(1, 0, 7000), kit.Bytes(2, 0, 5000)
		f.write(theirs) // by a session: the kernel still saw the file empty
		in := fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh, Size: 5000, Flags: unix.O_WRONLY | unix.O_APPEND}
		in.Unique = 2 | resent
		_, status := h.on.Write(nil, &in, data)
		h.ok(status)
		if got, want := f.readAt(20000, 0), append(theirs, data...); kit.FirstDiff(got, want) >= 0 || len(got) != len(want) {
			t.Errorf("%d bytes, different at %d", len(got), kit.FirstDiff(got, want))
		}
	})
}

// TestRestore opens what the state has, under the numbers that the kernel knows.
func TestRestore(t *testing.T) {
	h := newHeldRig(t)
	dir := h.root("sim1")
	f := h.create(dir, "file")
	data := kit.Bytes(3, 0, 100000)
	f.write(data)
	h.on.state.header.last = 500
	var removed fuse.EntryOut
	h.ok(h.Mkdir(nil, &fuse.MkdirIn{InHeader: header(dir), Mode: 0o750}, "removed", &removed))
	var open fuse.OpenOut
	h.ok(h.OpenDir(nil, &fuse.OpenIn{InHeader: header(removed.NodeId)}, &open))
	in := header(dir)
	h.ok(h.Rmdir(nil, &in, "removed"))
	for _, slot := range []heldSlot{
		{id: 200, ino: removed.NodeId, kind: heldDir},
		{id: 100, ino: f.ino, flags: unix.O_RDWR, kind: heldFile},
		{id: 100, ino: dir, kind: heldDir},
		{id: 300, ino: uint64(versionIno), kind: heldFile},
		{id: 400, ino: 1 << 30, kind: heldFile}, // not there any more
	} {
		h.on.state.add(slot, nil)
	}
	h.on.restore(t.Context())
	var pages recorder
	h.filesystem.kernel = &pages
	h.on.dropPages()
	slices.Sort(pages.pages)
	if !slices.Equal(pages.pages, []metadata.Ino{versionIno, metadata.Ino(f.ino)}) {
		t.Errorf("pages are dropped of %v", pages.pages)
	}
	again := &file{r: h.rig, ino: f.ino, fh: 100}
	if got := again.readAt(len(data)+1, 0); kit.FirstDiff(got, data) >= 0 || len(got) != len(data) {
		t.Errorf("%d bytes, different at %d", len(got), kit.FirstDiff(got, data))
	}
	again.writeAt([]byte("x"), 5)
	if got := (&file{r: h.rig, ino: uint64(versionIno), fh: 300}).readAt(100, 0); string(got) != "v1.2.3\n" {
		t.Errorf("the version is %q", got)
	}
	if _, ok := h.on.dirs.get(100); !ok {
		t.Error("the directory is not open")
	}
	h.ReleaseDir(&fuse.ReleaseIn{InHeader: header(removed.NodeId), Fh: open.Fh})
	if a := h.stat(removed.NodeId); a.Mode != unix.S_IFDIR|0o750 || a.Nlink != 0 {
		t.Errorf("a directory that was removed is %+v", a)
	}
	if n := len(h.on.state.all()); n != 4 {
		t.Errorf("%d handles are recorded, want 4", n)
	}
	// It ends with its last handle and reference.
	h.Forget(removed.NodeId, 1)
	h.ReleaseDir(&fuse.ReleaseIn{InHeader: header(removed.NodeId), Fh: 200})
	var gone fuse.AttrOut
	h.want(h.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(removed.NodeId)}, &gone), unix.ENOENT)
	if g := h.create(dir, "new"); g.fh <= 500 {
		t.Errorf("a new handle has the number %d, which the kernel may know", g.fh)
	}
}
