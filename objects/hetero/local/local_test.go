package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/hetero/local"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// simWorld is a world of one simulated device.
func simWorld(t *testing.T) *world {
	t.Helper()
	return newWorld(t, sims(1, sim.Params{Size: 256 * devices.MiB, Mapped: true})...)
}

// client returns a client of the world whose memory is files of the store.
func (w *world) client(t *testing.T, inode func(*os.File) (objects.Ino, error)) *local.Client {
	t.Helper()
	c := local.New(local.Options{Store: w.store, Inode: inode})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// well returns a function that fails the test unless all keys of a call succeeded.
func well(t *testing.T) func(r hetero.Results, err error) {
	t.Helper()
	return func(r hetero.Results, err error) {
		t.Helper()
		if err = errors.Join(err, r.Err()); err != nil {
			t.Fatal(err)
		}
	}
}

// lists returns lists for n keys, each of the byte at the key's index.
func lists(id hetero.MemoryID, n int) (keys []string, out []hetero.DeviceBlobList) {
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
		out = append(out, hetero.DeviceBlobList{
			Device: "sim0", Blobs: []hetero.Blob{{Memory: id, Off: devices.Offset(i), Size: 1}},
		})
	}
	return keys, out
}

// TestWaitingTakesNoGoroutines has 10 000 keys wait, and 10 000 published: a few goroutines
// serve all of them.
func TestWaitingTakesNoGoroutines(t *testing.T) {
	kit.Check(t)
	w := simWorld(t)
	p := w.Join(t)
	mem := p.Memory(t, "sim0", 2*hetero.MaxKeys)
	keys, from := lists(mem.ID(), hetero.MaxKeys)
	other, _ := lists(mem.ID(), hetero.MaxKeys)
	for i := range other {
		other[i] = "never-" + other[i]
	}
	before := runtime.NumGoroutine()
	given, err := p.Client().DevPublish(t.Context(), keys, from)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Client().DevSubscribe(t.Context(), other, from, hetero.SubscribeOptions{Timeout: hetero.MaxTimeout})
	if err != nil {
		t.Fatal(err)
	}
	// The first attempts for the keys are over, and their goroutines have ended.
	kit.Eventually(t, time.Minute, func() bool { return runtime.NumGoroutine() <= before+4 })
	if err = p.Client().Close(); err != nil {
		t.Error(err)
	}
	for i := range got {
		if err = got[i].Wait(t.Context()); !errors.Is(err, hetero.ErrClosed) {
			t.Fatalf("subscription %d ended with %v", i, err)
		}
		if err = given[i].Wait(t.Context()); !errors.Is(err, hetero.ErrWithdrawn) {
			t.Fatalf("publication %d ended with %v", i, err)
		}
	}
}

// TestWaitWhileMuchHappens has a call wait for keys while there are more events than its queue
// holds: it misses none.
func TestWaitWhileMuchHappens(t *testing.T) {
	kit.Check(t)
	w := simWorld(t)
	p, q := w.Join(t), w.Join(t)
	mem := p.Memory(t, "sim0", hetero.MaxKeys)
	keys, from := lists(mem.ID(), hetero.MaxKeys)
	if testing.Short() {
		keys, from = keys[:3000], from[:3000]
	}
	ended := make(chan error, 1)
	go func() {
		r, err := q.Client().Wait(t.Context(), keys, false, hetero.MaxTimeout)
		ended <- errors.Join(err, r.Err())
	}()
	well(t)(p.Client().DevMSet(t.Context(), keys, from))
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("keys that are there are waited for")
	}
}

// TestTooMuchMemory registers more pieces than a client may have, which is refused and
// counted.
func TestTooMuchMemory(t *testing.T) {
	kit.Check(t)
	w := simWorld(t)
	var refused local.Refusals
	c := local.New(local.Options{Store: w.store, Refusals: &refused})
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	m, err := w.devs[1].Alloc(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if rerr := m.Release(); rerr != nil {
			t.Error(rerr)
		}
	}()
	one := hetero.Memory{Device: "sim0", Local: m}
	var last hetero.MemoryID
	for range hetero.MaxMemories {
		if last, err = c.PreRegister(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	if id, rerr := c.PreRegister(t.Context(), one); !errors.Is(rerr, hetero.ErrNoMemory) || id != 0 {
		t.Errorf("a piece too many: %d, %v", id, rerr)
	}
	for _, l := range refused.Limits() {
		if got := l.Refused; (l.Name == "session-memories") != (got == 1) {
			t.Errorf("%s: %d refusals are counted", l.Name, got)
		}
	}
	if err = c.Unregister(t.Context(), last); err != nil {
		t.Error(err)
	}
	next, err := c.PreRegister(t.Context(), one)
	if err != nil || next == last {
		t.Errorf("a piece in place of memory %d: %d, %v", last, next, err)
	}
}

// TestRegisterShared registers memory by its descriptor, as sent by another process.
func TestRegisterShared(t *testing.T) {
	kit.Check(t)
	w := simWorld(t)
	c := w.client(t, nil)
	const size, at, n = 16 << 10, 5000, 3000
	f := kit.Memfd(t, 7, size)
	place := 0
	m := &share.Memory{Family: sim.Family, Size: size, Pieces: []share.Piece{
		{Kind: devices.HandleMemfd, FD: &place, Size: size},
	}}
	id, err := c.PreRegister(t.Context(), hetero.Memory{Device: "sim0", Share: m, Files: []*os.File{f}})
	if err != nil {
		t.Fatal(err)
	}
	keys, blobs := []string{"k"}, []hetero.DeviceBlobList{
		{Device: "sim0", Blobs: []hetero.Blob{{Memory: id, Off: at, Size: n}}},
	}
	well(t)(c.DevMSet(t.Context(), keys, blobs))
	p := w.Join(t)
	into := p.Memory(t, "sim0", n)
	well(t)(p.Client().DevMGet(t.Context(), keys, []hetero.DeviceBlobList{
		{Device: "sim0", Blobs: []hetero.Blob{{Memory: into.ID(), Size: n}}},
	}, hetero.GetOptions{}))
	got := make([]byte, n)
	into.Read(t, 0, got)
	if at := kit.DiffAt(got, 7, at); at >= 0 {
		t.Errorf("byte %d is wrong", at)
	}
	two := 2
	m.Pieces[0].FD = &two
	if _, err = c.PreRegister(t.Context(), hetero.Memory{Device: "sim0", Share: m, Files: []*os.File{f}}); !errors.Is(err, hetero.ErrInvalid) {
		t.Errorf("a descriptor that is not there: %v", err)
	}
}

// TestRegisterFile registers a file of the store: reads into it go through the object.
func TestRegisterFile(t *testing.T) {
	kit.Check(t)
	w := simWorld(t)
	root, err := w.store.Lookup(t.Context(), metadata.RootIno, "sim0")
	if err != nil {
		t.Fatal(err)
	}
	a, err := w.store.Create(t.Context(), root.Ino, "f", metadata.Node{Mode: metadata.TypeRegular | 0o600})
	if err != nil {
		t.Fatal(err)
	}
	f, err := w.store.OpenFile(t.Context(), a.Ino)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if cerr := f.Close(context.WithoutCancel(t.Context())); cerr != nil {
			t.Error(cerr)
		}
	}()
	const size = 9000
	if _, err = f.WriteAt(t.Context(), kit.Bytes(3, 0, size), objects.Write{}); err != nil {
		t.Fatal(err)
	}
	c := w.client(t, func(*os.File) (objects.Ino, error) { return a.Ino, nil })
	id, err := c.PreRegister(t.Context(), hetero.Memory{Device: "sim0", File: os.Stdin})
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{"k"}
	list := func(off devices.Offset, n devices.Size) []hetero.DeviceBlobList {
		return []hetero.DeviceBlobList{{Device: "sim0", Blobs: []hetero.Blob{{Memory: id, Off: off, Size: n}}}}
	}
	well(t)(c.MSetD2H(t.Context(), keys, list(1000, 500), hetero.SetOptions{}))
	well(t)(c.MGetH2D(t.Context(), keys, list(8000, 500), hetero.GetOptions{}))
	got := make([]byte, 500)
	if _, err = f.ReadAt(t.Context(), got, 8000); err != nil {
		t.Fatal(err)
	}
	if at := kit.DiffAt(got, 3, 1000); at >= 0 {
		t.Errorf("byte %d is wrong", at)
	}
	if r, gerr := c.MGetH2D(t.Context(), keys, list(8600, 500), hetero.GetOptions{}); !errors.Is(gerr, hetero.ErrInvalid) {
		t.Errorf("behind the end of the file: %v, %v", r, gerr)
	}
	futures, err := c.DevPublish(t.Context(), keys, list(0, size))
	if !errors.Is(err, hetero.ErrUnsupported) || len(futures) != 1 || !errors.Is(futures[0].Err(), hetero.ErrUnsupported) {
		t.Errorf("a file is published: %v", err)
	}
	// For a whole file, the file itself gets the key.
	well(t)(c.DevMSet(t.Context(), []string{"whole"}, list(0, size)))
	if _, err = c.PreRegister(t.Context(), hetero.Memory{Device: "host", File: os.Stdin}); !errors.Is(err, hetero.ErrInvalid) {
		t.Errorf("a file on another device: %v", err)
	}
	if _, err = w.client(t, nil).PreRegister(t.Context(), hetero.Memory{File: os.Stdin}); !errors.Is(err, hetero.ErrUnsupported) {
		t.Errorf("a file without a mount: %v", err)
	}
	// A removed file cannot be set as a key.
	if err = w.store.Unlink(t.Context(), root.Ino, "f"); err != nil {
		t.Fatal(err)
	}
	r, err := c.MGetH2D(t.Context(), keys, list(8000, 500), hetero.GetOptions{Timeout: 20 * time.Second})
	if !errors.Is(err, hetero.ErrLost) {
		t.Errorf("into a file that is gone: %v, %v", r, err)
	}
}

// TestClosed checks that every call of a closed client returns ErrClosed.
func TestClosed(t *testing.T) {
	kit.Check(t)
	w := simWorld(t)
	p := w.Join(t)
	keys, blobs := lists(p.Memory(t, "sim0", 10).ID(), 2)
	c, ctx := p.Client(), t.Context()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"PreRegister": func() error {
			_, err := c.PreRegister(ctx, hetero.Memory{Device: "sim0", Local: new(devices.Memory)})
			return err
		},
		"Unregister":  func() error { return c.Unregister(ctx, 1) },
		"Exist":       func() error { _, err := c.Exist(ctx, keys); return err },
		"GetMetaInfo": func() error { _, err := c.GetMetaInfo(ctx, keys, false); return err },
		"Wait":        func() error { _, err := c.Wait(ctx, keys, false, time.Hour/4); return err },
		"Expire":      func() error { _, err := c.Expire(ctx, keys, 0); return err },
		"DevDelete":   func() error { _, err := c.DevDelete(ctx, keys); return err },
		"AsyncDelete": func() error { _, err := c.AsyncDevDelete(ctx, keys); return err },
		"DevPublish":  func() error { _, err := c.DevPublish(ctx, keys, blobs); return err },
		"DevSubscribe": func() error {
			_, err := c.DevSubscribe(ctx, keys, blobs, hetero.SubscribeOptions{})
			return err
		},
	} {
		if err := call(); !errors.Is(err, hetero.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
}
