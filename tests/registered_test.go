package tests

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
	"github.com/hmcfs/hmcfs/transport"
)

// mountCard mounts a simulated card that registers files of the host tier.
func mountCard(t *testing.T, spec string) *mnt.M {
	t.Helper()
	return mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB,pinned=true" + spec}})
}

func cp(t *testing.T, m *mnt.M, from, to string) {
	t.Helper()
	if out, err := m.Run("cp", from, to); err != nil {
		t.Fatalf("cp %s %s: %v\n%s", from, to, err, out)
	}
}

func registered(m *mnt.M) transport.RegisteredStats { return m.Stats().Transfers.Registered }

// TestRegisteredFile copies a host file to a card repeatedly, while the file changes in every
// possible way.
func TestRegisteredFile(t *testing.T) {
	kit.Require(t, "fuse")
	kit.Check(t)
	useStandInCards(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB,pinned=true", "cuda:0,size=64MiB"}})
	for _, device := range []string{"sim0", "cuda0"} {
		t.Run(device, func(t *testing.T) { registeredFile(t, m, device) })
	}
}

func registeredFile(t *testing.T, m *mnt.M, device string) {
	t.Helper()
	const size = 20 << 20
	file, card := m.Path("host", "file"), m.Path(device, "card")
	create(t, file, 1, size)
	cp(t, m, file, card)
	wantContent(t, card, 1, size)
	first := registered(m)
	if first.Bytes == 0 || first.Failures != 0 {
		t.Fatalf("nothing was registered: %+v", first)
	}
	cp(t, m, file, card) // the file was closed in between
	again := registered(m)
	if again.Registered != first.Registered || again.Hits <= first.Hits {
		t.Errorf("a second copy registered anew: %+v, then %+v", first, again)
	}
	if held := m.Status().Memory.Registered; held != first.Bytes {
		t.Errorf("the status tells %v of %v", held, first.Bytes)
	}

	f := open(t, file, os.O_RDWR)
	defer func() { _ = f.Close() }()
	writeRange(t, f, 2, 0, size) // in place
	cp(t, m, file, card)
	wantContent(t, card, 2, size)
	must(t, f.Truncate(size/2))
	must(t, f.Truncate(size))
	writeRange(t, f, 3, 0, size) // on other pages
	cp(t, m, file, card)
	wantContent(t, card, 3, size)
	must(t, fallocate(f, punchHole, 4096, size/2))
	writeRange(t, f, 4, 0, size)
	cp(t, m, file, card)
	wantContent(t, card, 4, size)
	before := registered(m).Stale
	removeByMap(t, f, size)
	writeRange(t, f, 5, 0, size)
	cp(t, m, file, card)
	wantContent(t, card, 5, size)
	if m.Stats().Mount.Passthrough && registered(m).Stale == before {
		t.Error("pages that were taken behind the daemon's back were taken for registered")
	}

	// The other direction, over existing content and into a new file.
	create(t, card, 6, size)
	out := open(t, file, os.O_RDWR)
	defer func() { _ = out.Close() }()
	in := open(t, card, os.O_RDONLY)
	defer func() { _ = in.Close() }()
	for n := 0; n < size; {
		copied, err := copyFileRange(in, nil, out, nil, size-n)
		if err != nil || copied == 0 {
			t.Fatalf("copied %d of %d: %v", n, size, err)
		}
		n += copied
	}
	wantContent(t, file, 6, size)
	cp(t, m, card, m.Path("host", "fresh"))
	wantContent(t, m.Path("host", "fresh"), 6, size)

	must(t, errors.Join(os.Remove(file), os.Remove(m.Path("host", "fresh")), f.Close(), out.Close()))
	kit.Eventually(t, time.Minute, func() bool { return registered(m).Bytes == 0 && m.Device("host").Used == 0 })
}

// removeByMap punches a hole in a file without a request to the daemon if the kernel serves
// the file directly.
func removeByMap(t *testing.T, f *os.File, size int) {
	t.Helper()
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	must(t, errors.Join(unix.Madvise(mem[1<<20:2<<20], unix.MADV_REMOVE), unix.Munmap(mem)))
}

// TestShrinkWhileTheCardReads truncates a host file in the middle of its copy to a slow card.
// The daemon must not touch a page that no longer exists.
func TestShrinkWhileTheCardReads(t *testing.T) {
	const size = 24 << 20
	kit.Require(t, "fuse")
	kit.Check(t)
	m := mountCard(t, ",bandwidth=60MB/s")
	file, card := m.Path("host", "file"), m.Path("sim0", "card")
	for range 3 {
		create(t, file, 1, size)
		before := registered(m).Registered
		done := make(chan error, 1)
		go func() {
			_, err := m.Run("cp", file, card)
			done <- err
		}()
		kit.Eventually(t, time.Minute, func() bool { return registered(m).Registered > before })
		must(t, os.Truncate(file, 0))
		// The copy may report that the file became shorter.
		t.Logf("cp: %v", <-done)
		create(t, file, 2, size)
		cp(t, m, file, card)
		wantContent(t, card, 2, size)
	}
	if s := registered(m); s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

// TestRegisteredIntoAFullTier copies more from the card than the host tier has space for.
func TestRegisteredIntoAFullTier(t *testing.T) {
	const size = 40 << 20
	kit.Require(t, "fuse")
	kit.Check(t)
	m := mountCard(t, "")
	card := m.Path("sim0", "card")
	create(t, card, 1, size)
	cp(t, m, card, m.Path("host", "a"))
	if out, err := m.Run("cp", card, m.Path("host", "b")); err == nil {
		t.Errorf("80 MiB went into 64 MiB\n%s", out)
	}
	wantContent(t, m.Path("host", "a"), 1, size)
	must(t, os.Remove(m.Path("host", "a")))
	cp(t, m, card, m.Path("host", "b"))
	wantContent(t, m.Path("host", "b"), 1, size)
	must(t, os.Remove(m.Path("host", "b")))
	kit.Eventually(t, time.Minute, func() bool { return registered(m).Bytes == 0 && m.Device("host").Used == 0 })
}
