package admin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	hmc "github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/hetero/local"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
)

// storeKeyed has the keys of a store.
type storeKeyed struct {
	*fakeKeyed
	store *objects.Store
}

func (k storeKeyed) Begin(by objects.Caller, _ string) (hetero.Client, error) {
	return local.New(local.Options{Store: k.store, Caller: by}), nil
}

// newStoreRig returns a server of the keys and files of host memory.
func newStoreRig(t *testing.T) *keyedRig {
	t.Helper()
	kit.Check(t)
	ctx := context.Background()
	d, err := devices.NewRegistry(host.NewDriver(host.Options{Dir: t.TempDir(), NoMount: true})).Open(ctx, "host,size=16MiB")
	if err != nil {
		t.Skipf("needs a tmpfs: %v", err)
	}
	tier, ok := d.(*host.Device)
	if !ok {
		t.Fatalf("the host is a %T", d)
	}
	meta, err := metadata.Open(ctx, memkv.New(), metadata.Options{})
	fatal(t, err)
	engine, err := transport.New(transport.Options{})
	fatal(t, err)
	store, err := objects.Open(ctx, objects.Options{Meta: meta, Engine: engine, Devices: []devices.Device{d}})
	fatal(t, err)
	files := hmc.NewFiles(hmc.Options{Store: store, Engine: engine})
	t.Cleanup(func() {
		files.Close() //nolint:contextcheck // closing is not interrupted
		if err := errors.Join(store.Close(ctx, objects.CloseOptions{}), engine.Close(), tier.Destroy(), meta.Close()); err != nil {
			t.Error(err)
		}
	})
	return newKeyedRigWith(t, 0, func(o *admin.Options) {
		o.Keyed = storeKeyed{&fakeKeyed{queue: make(chan objects.Event, 1)}, store}
		o.Files, o.Calls = files, admin.NewCalls(nil)
	})
}

// sharedWith registers new memory with a session.
func sharedWith(t *testing.T, s *client.Session, n devices.Size) (hetero.MemoryID, []byte) {
	t.Helper()
	f, err := share.Sealed("allocations", n)
	fatal(t, err)
	defer func() { _ = f.Close() }() // the session has its own descriptor
	all, err := unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	fatal(t, err)
	t.Cleanup(func() { _ = unix.Munmap(all) })
	return registeredWith(t, s, f, n), all
}

// registeredWith registers n bytes of a file in memory with a session.
func registeredWith(t *testing.T, s *client.Session, f *os.File, n devices.Size) hetero.MemoryID {
	t.Helper()
	place := 0
	id, err := s.PreRegister(t.Context(), hetero.Memory{
		Device: "host", Files: []*os.File{f},
		Share: &share.Memory{Family: "host", Size: n, Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &place, Size: n}}},
	})
	fatal(t, err)
	return id
}

// TestAllocations bounds the allocations of calls by a session, of both sides together: the
// daemon's and those of the client, which is in the same process.
func TestAllocations(t *testing.T) {
	if kit.Race() {
		t.Skip("the race detector allocates")
	}
	const size, most = 4 << 10, 100
	r := newStoreRig(t)
	s := r.open(t)
	id, all := sharedWith(t, s, 2*most*size)
	for i := range all[:most*size] {
		all[i] = byte(i ^ i>>8)
	}
	var keys []string
	var from, to []hetero.DeviceBlobList
	for i := range most {
		keys = append(keys, fmt.Sprintf("key-%d", i))
		at := func(n int) []hetero.DeviceBlobList {
			return []hetero.DeviceBlobList{{Device: "host", Blobs: []hetero.Blob{{Memory: id, Off: devices.Offset(n * size), Size: size}}}}
		}
		from, to = append(from, at(i)...), append(to, at(most+i)...)
	}
	ctx := context.Background() // one that can end costs the client four more: context.AfterFunc
	mset := func(n int) func() {
		return func() {
			done, err := s.DevMSet(ctx, keys[:n], from[:n])
			fatal(t, errors.Join(err, done.Err()))
		}
	}
	mset(most)()
	mget := func(n int) func() {
		var got hetero.Results
		return func() {
			var failure error
			got, failure = s.DevMGet(ctx, keys[:n], to[:n], hetero.GetOptions{Into: got})
			fatal(t, errors.Join(failure, got.Err()))
		}
	}
	f, err := s.Files().OpenFile("host/file", os.O_RDWR|os.O_CREATE, 0o600)
	fatal(t, err)
	defer func() { fatal(t, f.Close()) }()
	buf := make([]byte, size)
	fatal(t, s.Set(ctx, "value", all[:size], hetero.SetOptions{}))
	for _, c := range []struct {
		what string
		most float64
		do   func()
	}{
		// The caller has memory for the results.
		{"mget of one key", 0, mget(1)},
		{"mget of 100 keys", 0, mget(most)},
		// The results, and two for each key: the content that it would have, and a context.
		{"mset of a key that is set", 16, mset(1)},
		{"mset of 100 keys that are set", 250, mset(most)},
		// The object and its records, also those of the key-value store, which is in memory here.
		{"delete and mset of a key", 140, func() {
			gone, err := s.DevDelete(ctx, keys[:1])
			fatal(t, errors.Join(err, gone.Err()))
			mset(1)()
		}},
		{"write of 4 KiB", 0, func() { _, err := f.WriteAt(all[:size], 0); fatal(t, err) }},
		// The result that go-fuse takes.
		{"read of 4 KiB", 1, func() { _, err := f.ReadAt(buf, 0); fatal(t, err) }},
		{"write of 4 KiB of memory", 0, func() { _, err := f.WriteMemory(ctx, from[0].Blobs[0], 0); fatal(t, err) }},
		{"read of 4 KiB into memory", 0, func() { _, err := f.ReadMemory(ctx, to[0].Blobs[0], 0); fatal(t, err) }},
		// The value, whose size is expected, and the store's reading of an object in host memory.
		{"get of 4 KiB", 12, func() { _, err := s.Get(ctx, "value"); fatal(t, err) }},
		// The object and its records, and those of the one that it replaces.
		{"set of 4 KiB", 140, func() { fatal(t, s.Set(ctx, "value", all[:size], hetero.SetOptions{})) }},
	} {
		if got := least(c.do, c.most); got > c.most {
			t.Errorf("%s allocates %v times, at most %v", c.what, got, c.most)
		}
	}
}

// least returns the fewest allocations of many calls, or of those up to one with at most enough: other
// goroutines allocate too, a call that was delayed is carried out by several, and on a busy machine that
// can be so for a while.
func least(run func(), enough float64) float64 {
	best := testing.AllocsPerRun(1, run)
	for i := 0; i < 20000 && best > enough; i++ {
		best = min(best, testing.AllocsPerRun(1, run))
	}
	return best
}
