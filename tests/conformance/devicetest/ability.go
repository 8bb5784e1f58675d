package devicetest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/hmcfs/hmcfs/devices"
)

// checkMapHost uses views together with copies: both show the same bytes.
func checkMapHost(e *env) {
	shadow := Bytes(e.within(200*kib+1), 1)
	mem := e.filled(shadow)
	defer e.release(mem)
	if _, ok := e.dev.(devices.HostMapper); !ok {
		_, err := devices.MapHost(e.ctx, mem.All(), devices.ReadOnly)
		e.fails("MapHost without the ability", err, devices.ErrUnsupported)
		return
	}
	whole := e.view(mem.All(), devices.ReadOnly)
	e.ok(Compare(whole.Bytes, shadow))
	whole.Release()

	for _, at := range [][2]int{{0, 1}, {4095, 5000}, {len(shadow) / 2, len(shadow) / 3}} {
		off, n := at[0], min(at[1], len(shadow)-at[0])
		v := e.view(e.span(mem, off, n), devices.ReadWrite)
		e.ok(Compare(v.Bytes, shadow[off:off+n]))
		Pattern(v.Bytes, 9, uint64(off))
		copy(shadow[off:off+n], v.Bytes)
		v.Release()
		e.holds(mem, shadow)
	}
	e.ok(e.dev.Fill(e.ctx, e.span(mem, 0, 100), 7))
	v := e.view(e.span(mem, 0, 100), devices.ReadOnly)
	e.ok(Compare(v.Bytes, bytes.Repeat([]byte{7}, 100)))
	w := e.view(e.span(mem, 50, 100), devices.ReadOnly)
	other := e.filled(shadow)
	w.Release()
	v.Release()
	e.holds(other, shadow)
	e.release(other)
	e.view(e.span(mem, 10, 0), devices.ReadOnly).Release()
}

func (e *env) view(s devices.Span, access devices.Access) devices.View {
	e.Helper()
	v, err := devices.MapHost(e.ctx, s, access)
	e.ok(err)
	if len(v.Bytes) != int(s.Len) {
		e.Fatalf("a view of %d bytes for %v", len(v.Bytes), s.Range)
	}
	return v
}

// checkPinHost copies from and to a buffer that is pinned if the device supports it.
func checkPinHost(e *env) {
	buf := Bytes(3*64*kib, 1)
	want := bytes.Clone(buf)
	unpin, pinned := devices.PinHost(e.dev, buf)
	e.Logf("pinned: %v", pinned)
	mem := e.filled(buf)
	clear(buf)
	e.ok(e.dev.CopyOut(e.ctx, buf, mem.All()))
	unpin()
	e.ok(Compare(buf, want))
	e.holds(mem, want)
	e.release(mem)
}

func checkCopyPeer(e *env) {
	want := Bytes(e.within(100*kib+1), 1)
	src := e.filled(want)
	peer := &env{T: e.T, open: e.open, ctx: e.ctx, dev: e.another()}
	dst := peer.alloc(len(want))
	err := devices.CopyPeer(e.ctx, dst.All(), src.All())
	_, able := peer.dev.(devices.PeerCopier)
	switch {
	case err == nil && able:
		peer.holds(dst, want)
	case !errors.Is(err, devices.ErrUnsupported):
		e.Errorf("copy between two devices of a family: %v", err)
	}
	e.holds(src, want)
	e.release(src)
	peer.release(dst)
}

// checkFiles checks the file tier of a device that has one.
func checkFiles(e *env) {
	files, ok := devices.FilesOf(e.dev)
	if !ok {
		return
	}
	_, err := files.Open(5, false)
	e.fails("open of a missing file", err, fs.ErrNotExist)
	want := Bytes(100*kib, 1)
	ids := []uint64{0, 5, 1 << 40, ^uint64(0)}
	for _, id := range ids {
		e.createFile(files, id, want)
	}
	if e.used() < devices.Size(len(ids)*len(want)) {
		e.Errorf("%d files are not counted", len(ids))
	}
	seen := map[uint64]bool{}
	e.ok(files.Each(func(id uint64) error { seen[id] = true; return nil }))
	if len(seen) != len(ids) {
		e.Errorf("files %v, want %v", seen, ids)
	}
	stop := errors.New("stop")
	e.fails("Each with an error", files.Each(func(uint64) error { return stop }), stop)
	f, err := files.Open(5, false)
	e.ok(err)
	e.ok(files.Remove(5))
	e.ok(files.Remove(5))
	got, err := io.ReadAll(f)
	e.ok(err)
	e.ok(Compare(got, want))
	e.ok(f.Close())
	_, err = files.Open(0, true)
	e.fails("make a file that is there", err, fs.ErrExist)
	e.checkAside(files, want)
	for _, id := range ids {
		e.ok(files.Remove(id))
	}
	e.checkNumbers(files)
	e.ok(files.Reserve(0))
	if err := files.Reserve(e.dev.Info().Total + 1); err != nil {
		e.fails("Reserve of more than there is", err, devices.ErrOutOfMemory)
	}
	if used := e.used(); used != 0 {
		e.Errorf("%v in use after all files are gone", used)
	}
}

// checkAside sets file 0 aside, and then a new file with the same number.
func (e *env) checkAside(files devices.Files, want []byte) {
	e.Helper()
	for n := 1; n <= 2; n++ {
		before := e.used()
		e.ok(files.SetAside(0))
		if used := e.used(); used != before {
			e.Errorf("%v in use, %v when it was set aside", before, used)
		}
		_, err := files.Open(0, false)
		e.fails("open of a file that was set aside", err, fs.ErrNotExist)
		e.fails("set a missing file aside", files.SetAside(0), fs.ErrNotExist)
		all, err := files.Aside()
		e.ok(err)
		if len(all) != n {
			e.Fatalf("set aside are %v", all)
		}
		for _, f := range all {
			if f.ID != 0 || f.Size != uint64(len(want)) || f.Used < devices.Size(len(want)) {
				e.Errorf("set aside is %+v", f)
			}
			got, err := os.ReadFile(f.Path)
			e.ok(err)
			e.ok(Compare(got, want))
		}
		e.createFile(files, 0, want)
	}
	all, err := files.Aside()
	e.ok(err)
	for _, f := range all {
		e.ok(files.RemoveAside(f.Name))
		e.ok(files.RemoveAside(f.Name))
	}
	if all, err = files.Aside(); err != nil || len(all) > 0 {
		e.Errorf("set aside are %v, %v", all, err)
	}
}

// checkNumbers sets numbers and reads them back.
func (e *env) checkNumbers(numbers devices.Numbers) {
	e.Helper()
	for _, n := range []uint64{1 << 62, 7, 0, 1<<63 - 1} {
		e.ok(numbers.SetNumber("some", n))
		if got, err := numbers.Number("some"); err != nil || got != n {
			e.Errorf("number %d is %d, %v", n, got, err)
		}
	}
	if got, err := numbers.Number("other"); err != nil || got != 0 {
		e.Errorf("a number that was never kept is %d, %v", got, err)
	}
	e.fails("a number that is too large", numbers.SetNumber("some", 1<<63), devices.ErrRange)
}

// createFile creates a file of the tier with the given content.
func (e *env) createFile(files devices.Files, id uint64, content []byte) {
	e.Helper()
	f, err := files.Open(id, true)
	e.ok(err)
	_, err = f.Write(content)
	e.ok(err)
	e.ok(f.Close())
}
