package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/hetero/local"
	"github.com/hmcfs/hmcfs/tests/kit"
)

const (
	reservedKey  = "reserved"
	reservedSize = 100_003
)

// publishFile publishes a file of sim0 with content, which may be empty.
func (w *world) publishFile(t *testing.T, seed uint64, size int) {
	t.Helper()
	ctx := t.Context()
	dir, err := w.store.Lookup(ctx, metadata.RootIno, "sim0")
	must(t, err)
	a, err := w.store.Create(ctx, dir.Ino, reservedKey, metadata.Node{Mode: metadata.TypeRegular | 0o644})
	must(t, err)
	f, err := w.store.OpenFile(ctx, a.Ino)
	must(t, err)
	if size > 0 {
		_, err = f.WriteAt(ctx, kit.Bytes(seed, 0, size), objects.Write{})
		must(t, err)
	}
	must(t, f.Close(ctx))
	must(t, w.store.Rename(ctx, metadata.Rename{From: dir.Ino, Name: reservedKey, To: metadata.PublishIno, NewName: reservedKey}))
}

// isOffered reports whether a client can reserve the publication, and gives it
// back.
func (w *world) isOffered(t *testing.T) bool {
	t.Helper()
	c := local.New(local.Options{Store: w.store})
	_, err := c.DevClaim(t.Context(), reservedKey, hetero.ClaimOptions{})
	if err == nil {
		must(t, c.DevSettle(t.Context(), reservedKey, false))
	} else if !errors.Is(err, hetero.ErrTimeout) {
		t.Errorf("claim: %v", err)
	}
	must(t, c.Close())
	return err == nil
}

// receiveFile renames the publication to sim0.
func (w *world) receiveFile(ctx context.Context) error {
	dir, err := w.store.Lookup(ctx, metadata.RootIno, "sim0")
	if err != nil {
		return err
	}
	return w.store.Rename(ctx, metadata.Rename{From: metadata.PublishIno, Name: reservedKey, To: dir.Ino, NewName: reservedKey})
}

// A client that ends at any stage has received the publication that it reserved if it said so,
// or if its target has its name; otherwise the publication is offered again.
func TestReservationOfAClientThatEnds(t *testing.T) {
	for _, kind := range []string{"no target", "nameless", "of the store"} {
		for _, stage := range []string{"claimed", "fetched", "named", "received", "given back"} {
			t.Run(kind+"/"+stage, func(t *testing.T) {
				kit.Check(t)
				w := newWorld(t, sims(1, sim.Params{Size: 4 * devices.MiB})...)
				w.publishFile(t, 1, reservedSize)
				r := &reserver{world: w, kind: kind}
				wantReceived := r.reach(t, stage)
				if got := !w.isOffered(t); got != wantReceived {
					t.Errorf("received: %v, want %v", got, wantReceived)
				}
				r.checkTarget(t, wantReceived)
			})
		}
	}
}

// reserver receives a publication up to some stage.
type reserver struct {
	world  *world
	client *local.Client
	kind   string
	target *os.File // of kind nameless
	path   string
	ino    objects.Ino // of kind "of the store"
	dir    objects.Ino
}

// reach proceeds to a stage, and ends the client there. It reports whether the publication
// counts as received.
func (r *reserver) reach(t *testing.T, stage string) (received bool) {
	t.Helper()
	ctx := t.Context()
	var id hetero.MemoryID
	r.client = local.New(local.Options{Store: r.world.store, Inode: r.inode})
	var err error
	switch r.kind {
	case "nameless":
		dir := t.TempDir()
		fd, oerr := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		must(t, oerr)
		r.target, r.path = os.NewFile(uintptr(fd), "target"), filepath.Join(dir, "t")
		id, err = r.client.PreRegister(ctx, hetero.Memory{Target: r.target})
		must(t, err)
	case "of the store":
		host, lerr := r.world.store.Lookup(ctx, metadata.RootIno, "host")
		must(t, lerr)
		a, cerr := r.world.store.Create(ctx, host.Ino, "unfinished", metadata.Node{Mode: metadata.TypeRegular | 0o644})
		must(t, cerr)
		r.ino, r.dir = a.Ino, host.Ino
		must(t, r.world.store.SetTTL(ctx, objects.Caller{}, a.Ino, "600", 0))
		r.target, err = os.Open(os.DevNull) // inode recognizes it
		must(t, err)
		id, err = r.client.PreRegister(ctx, hetero.Memory{Target: r.target})
		must(t, err)
	}
	info, err := r.client.DevClaim(ctx, reservedKey, hetero.ClaimOptions{Target: id})
	must(t, err)
	if info.Size != reservedSize {
		t.Errorf("%d bytes", info.Size)
	}
	for _, one := range []string{"claimed", "fetched", "named", "received"} {
		if one == "fetched" {
			r.fetch(t)
		}
		if one == "named" && stage != "given back" {
			r.name(t)
		}
		if stage == one {
			break
		}
	}
	switch stage {
	case "received":
		must(t, r.client.DevSettle(ctx, reservedKey, true))
		if err = r.client.DevSettle(ctx, reservedKey, false); !errors.Is(err, hetero.ErrNotFound) {
			t.Errorf("settled twice: %v", err)
		}
		received = true
	case "given back":
		must(t, r.client.DevSettle(ctx, reservedKey, false))
	case "named":
		received = r.kind != "no target"
	}
	must(t, r.client.Close())
	if r.target != nil {
		must(t, r.target.Close())
	}
	return received
}

// inode returns the file of the store for the descriptor that represents it.
func (r *reserver) inode(f *os.File) (objects.Ino, error) {
	if r.ino == 0 {
		return 0, objects.ErrInvalid
	}
	return r.ino, nil
}

// fetch reads the publication in two parts, the second first.
func (r *reserver) fetch(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	memory, err := r.world.devs[1].Alloc(ctx, reservedSize)
	must(t, err)
	id, err := r.client.PreRegister(ctx, hetero.Memory{Device: "sim0", Local: memory})
	must(t, err)
	for _, part := range [][2]int{{50_001, reservedSize}, {0, 50_001}} {
		must(t, r.client.DevFetch(ctx, reservedKey, hetero.DeviceBlobList{
			Device: "sim0", SourceOffset: int64(part[0]),
			Blobs: []hetero.Blob{{Memory: id, Off: devices.Offset(part[0]), Size: devices.Size(part[1] - part[0])}},
		}))
	}
	got := make([]byte, reservedSize)
	must(t, memory.Device().CopyOut(ctx, got, memory.All()))
	if i := kit.DiffAt(got, 1, 0); i >= 0 {
		t.Errorf("differs at %d", i)
	}
	err = r.client.DevFetch(ctx, reservedKey, hetero.DeviceBlobList{
		Device: "sim0", SourceOffset: reservedSize,
		Blobs: []hetero.Blob{{Memory: id, Size: 1}},
	})
	if !errors.Is(err, hetero.ErrShape) {
		t.Errorf("behind the end: %v", err)
	}
	must(t, r.client.Unregister(ctx, id))
	must(t, memory.Release())
}

// name gives the target its final name.
func (r *reserver) name(t *testing.T) {
	t.Helper()
	switch r.kind {
	case "nameless":
		must(t, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", r.target.Fd()), unix.AT_FDCWD, r.path, unix.AT_SYMLINK_FOLLOW))
	case "of the store":
		must(t, r.world.store.Rename(t.Context(), metadata.Rename{From: r.dir, Name: "unfinished", To: r.dir, NewName: "t"}))
	}
}

// checkTarget checks that a target in the store becomes permanent if it was received into.
func (r *reserver) checkTarget(t *testing.T, received bool) {
	t.Helper()
	if r.ino == 0 {
		return
	}
	a, err := r.world.store.Attr(t.Context(), r.ino)
	must(t, err)
	if stays := a.Expires == (metadata.Timespec{}); stays != received {
		t.Errorf("the target stays: %v, want %v", stays, received)
	}
}

// One client reserves a publication, which may be empty; another one waits for the outcome.
func TestReservedByAnother(t *testing.T) {
	kit.Check(t)
	for _, size := range []int{0, 100} {
		w := newWorld(t, sims(1, sim.Params{Size: 4 * devices.MiB})...)
		w.publishFile(t, 2, size)
		a, b := local.New(local.Options{Store: w.store}), local.New(local.Options{Store: w.store})
		info, err := a.DevClaim(t.Context(), reservedKey, hetero.ClaimOptions{})
		must(t, err)
		if int(info.Size) != size {
			t.Errorf("%d bytes, want %d", info.Size, size)
		}
		if _, err = a.DevClaim(t.Context(), reservedKey, hetero.ClaimOptions{}); !errors.Is(err, hetero.ErrInconsistent) {
			t.Errorf("reserved twice by one: %v", err)
		}
		if _, err = b.DevClaim(t.Context(), reservedKey, hetero.ClaimOptions{}); !errors.Is(err, hetero.ErrBusy) {
			t.Errorf("reserved by two: %v", err)
		}
		waits := make(chan error, 1)
		go func() {
			_, err := b.DevClaim(context.Background(), reservedKey, hetero.ClaimOptions{Timeout: time.Minute})
			waits <- err
		}()
		must(t, a.Close())
		must(t, <-waits)
		must(t, b.DevSettle(t.Context(), reservedKey, true))
		must(t, b.Close())
		if w.isOffered(t) {
			t.Error("received, and offered still")
		}
	}
}

// Without a timeout there is no wait: a reservation by another client is reported at once, by
// the call and by a rename.
func TestReservedIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sims(1, sim.Params{Size: 4 * devices.MiB})...)
		w.publishFile(t, 4, 10)
		a, b := local.New(local.Options{Store: w.store}), local.New(local.Options{Store: w.store})
		_, err := a.DevClaim(t.Context(), reservedKey, hetero.ClaimOptions{})
		must(t, err)
		begun := time.Now() // by the test's clock, which advances when all goroutines wait
		if _, err = b.DevClaim(t.Context(), reservedKey, hetero.ClaimOptions{}); !errors.Is(err, hetero.ErrBusy) {
			t.Errorf("reserved by two: %v", err)
		}
		if err = w.receiveFile(t.Context()); !errors.Is(err, objects.ErrBusy) {
			t.Errorf("renamed while it is reserved: %v", err)
		}
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("told after %v", waited)
		}
		must(t, a.DevSettle(t.Context(), reservedKey, false))
		must(t, w.receiveFile(t.Context()))
		must(t, a.Close())
		must(t, b.Close())
	})
}

// slowKeys are keys of which a node takes long to answer, as if its daemon had died and another were to follow.
type slowKeys struct {
	objects.Keys
	takes time.Duration
}

func (k slowKeys) Claim(ctx context.Context, h *objects.Holder, key string, wait bool) (objects.Reservation, error) {
	select {
	case <-time.After(k.takes):
		return k.Keys.Claim(ctx, h, key, wait)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", cluster.ErrUnreachable, ctx.Err())
	}
}

// The node of a publication is waited for as long as it takes, also by who does not wait for another client.
func TestReservedAtASlowNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sims(1, sim.Params{Size: 4 * devices.MiB})...)
		w.publishFile(t, 5, 10)
		c := local.New(local.Options{Store: w.store, Keys: slowKeys{objects.LocalKeys{Store: w.store}, 9 * time.Second}})
		_, err := c.DevClaim(t.Context(), reservedKey, hetero.ClaimOptions{})
		must(t, err)
		must(t, c.DevSettle(t.Context(), reservedKey, false))
		_, err = c.DevClaim(t.Context(), reservedKey, hetero.ClaimOptions{Timeout: time.Minute})
		must(t, err)
		must(t, c.Close())
	})
}

// A reservation that is not read for long is offered again, even though its client still
// exists.
func TestIdleReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sims(1, sim.Params{Size: 4 * devices.MiB})...)
		w.publishFile(t, 3, 10)
		c := local.New(local.Options{Store: w.store})
		_, err := c.DevClaim(t.Context(), reservedKey, hetero.ClaimOptions{})
		must(t, err)
		<-time.After(hetero.ClaimIdle - time.Second)
		synctest.Wait()
		if _, err = c.DevClaim(t.Context(), reservedKey, hetero.ClaimOptions{}); !errors.Is(err, hetero.ErrInconsistent) {
			t.Errorf("before its time: %v", err)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if !w.isOffered(t) {
			t.Error("it is not offered again")
		}
		if err = c.DevSettle(t.Context(), reservedKey, true); !errors.Is(err, hetero.ErrNotFound) {
			t.Errorf("received behind its time: %v", err)
		}
		must(t, c.Close())
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
