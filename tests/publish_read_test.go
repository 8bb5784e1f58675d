package tests

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// publishReader reads a whole publication and returns its bytes.
type publishReader struct {
	name string
	read func(t *testing.T, p place, offer string) []byte
}

// outputOf runs a program and returns its output.
func outputOf(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	must(t, err)
	return out
}

// copiedTo runs a program that copies to a path, and returns the content of that path.
func copiedTo(t *testing.T, path string, args ...string) []byte {
	t.Helper()
	run(t, args[0], args[1:]...)
	got, err := os.ReadFile(path)
	must(t, err)
	must(t, os.Remove(path))
	return got
}

// stretch is a range of a file.
type stretch struct{ off, n int }

// inRandomOrder divides n bytes into stretches, some of which overlap.
func inRandomOrder(n int) []stretch {
	var all []stretch
	for off := 0; off < n; {
		k := min(1+rand.IntN(200_000), n-off)
		from := max(0, off-rand.IntN(2)*rand.IntN(100))
		all = append(all, stretch{from, off + k - from})
		off += k
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// pread reads stretches of a file.
func pread(t testing.TB, offer string, parts []stretch) []byte {
	t.Helper()
	f := open(t, offer, os.O_RDONLY)
	got := make([]byte, publishSize)
	for _, s := range parts {
		if n, err := f.ReadAt(got[s.off:][:s.n], int64(s.off)); err != nil {
			t.Fatalf("read %d bytes at %d: %d, %v", s.n, s.off, n, err)
		}
	}
	must(t, f.Close())
	return got
}

func mapAll(flags int) func(*testing.T, place, string) []byte {
	return func(t *testing.T, _ place, offer string) []byte {
		view, unmap := mapping(t, offer, flags)
		got := append([]byte(nil), view...)
		unmap()
		return got
	}
}

func publishReaders() []publishReader {
	return []publishReader{
		{"cat", func(t *testing.T, _ place, offer string) []byte { return outputOf(t, "cat", offer) }},
		{"cp to another device", func(t *testing.T, p place, offer string) []byte {
			to := filepath.Join(p.other(), "copy")
			return copiedTo(t, to, "cp", offer, to)
		}},
		{"cp on the device", func(t *testing.T, p place, offer string) []byte {
			return copiedTo(t, p.path("copy"), "cp", offer, p.path("copy"))
		}},
		{"cp to outside", func(t *testing.T, _ place, offer string) []byte {
			to := filepath.Join(t.TempDir(), "copy")
			return copiedTo(t, to, "cp", offer, to)
		}},
		{"dd", func(t *testing.T, _ place, offer string) []byte {
			return outputOf(t, "dd", "status=none", "bs=12345", "if="+offer)
		}},
		{"dd direct", func(t *testing.T, _ place, offer string) []byte {
			return outputOf(t, "dd", "status=none", "bs=64k", "iflag=direct", "if="+offer)
		}},
		{"pread in random order", func(t *testing.T, _ place, offer string) []byte {
			return pread(t, offer, inRandomOrder(publishSize))
		}},
		{"map shared", mapAll(unix.MAP_SHARED)},
		{"map private", mapAll(unix.MAP_PRIVATE)},
		{"sendfile", func(t *testing.T, _ place, offer string) []byte {
			from := open(t, offer, os.O_RDONLY)
			to := open(t, filepath.Join(t.TempDir(), "copy"), os.O_RDWR|os.O_CREATE)
			for n := 1; n > 0; {
				var err error
				n, err = unix.Sendfile(int(to.Fd()), int(from.Fd()), nil, 1<<20)
				must(t, err)
			}
			must(t, from.Close())
			got, err := os.ReadFile(to.Name())
			must(t, err)
			return got
		}},
	}
}

// TestPublishReceivedByReading receives by every way of reading.
func TestPublishReceivedByReading(t *testing.T) {
	onPublishers(t, func(t *testing.T, p place) {
		for i, r := range publishReaders() {
			t.Run(r.name, func(t *testing.T) {
				seed := uint64(i)
				offer := p.publish(t, "t", seed, publishSize)
				got := r.read(t, p, offer)
				if d := kit.DiffAt(got, seed, 0); len(got) != publishSize || d >= 0 {
					t.Errorf("got %d bytes, which differ at %d", len(got), d)
				}
				if strings.HasPrefix(r.name, "map") {
					wantGoneSoon(t, offer)
				}
				wantGone(t, offer)
			})
		}
		t.Run("empty", func(t *testing.T) {
			offer := p.publish(t, "t", 1, 0)
			run(t, "ls", "-l", offer)
			if got := outputOf(t, "cat", offer); len(got) != 0 {
				t.Errorf("%d bytes of an empty file", len(got))
			}
			wantGone(t, offer)
		})
		t.Run("empty, by one of many", func(t *testing.T) { emptyByOneOfMany(t, p) })
	})
}

// emptyByOneOfMany lets readers and a rename compete for an empty publication: exactly one
// receives it.
func emptyByOneOfMany(t *testing.T, p place) {
	t.Helper()
	offer := p.publish(t, "t", 1, 0)
	received := 0
	var files []*os.File
	for range 4 {
		files = append(files, open(t, offer, os.O_RDONLY))
	}
	for _, f := range files {
		if _, err := io.ReadAll(f); err == nil {
			received++
		} else {
			wantErrno(t, err, unix.EIO)
		}
	}
	if err := os.Rename(offer, p.path("moved")); err == nil {
		received++
	}
	if received != 1 {
		t.Errorf("received %d times", received)
	}
	for _, f := range files {
		must(t, f.Close())
	}
	wantGone(t, offer)
}

// TestPublishGoesWithItsReader lets a reader that has received everything keep the file open:
// it can read it again, no other process can, and the file is removed when the reader closes
// it.
func TestPublishGoesWithItsReader(t *testing.T) {
	onPublishers(t, func(t *testing.T, p place) {
		offer := p.publish(t, "t", 1, publishSize)
		f, late := open(t, offer, os.O_RDONLY), open(t, offer, os.O_RDONLY)
		got, err := io.ReadAll(f)
		must(t, err)
		if d := kit.DiffAt(got, 1, 0); len(got) != publishSize || d >= 0 {
			t.Errorf("got %d bytes, which differ at %d", len(got), d)
		}
		_, err = os.Open(offer)
		wantErrno(t, err, unix.ENOENT)
		_, err = late.ReadAt(make([]byte, 10), 0)
		wantErrno(t, err, unix.EIO)
		again := make([]byte, 1000)
		_, err = f.ReadAt(again, 2000)
		must(t, err)
		if d := kit.DiffAt(again, 1, 2000); d >= 0 {
			t.Errorf("read again it differs at %d", d)
		}
		must(t, f.Close())
		wantGone(t, offer)
		must(t, late.Close())
		// Its name is free at once.
		wantOffered(t, p.publish(t, "t", 2, 1000), 2, 1000)
	})
}

// TestPublishPartsConsumeNothing reads, maps and inspects all but the whole, after which the
// publication is still complete.
func TestPublishPartsConsumeNothing(t *testing.T) {
	onPublishers(t, func(t *testing.T, p place) {
		offer := p.publish(t, "t", 1, publishSize)
		for _, s := range []stretch{{0, 1}, {0, publishSize - 1}, {1, publishSize - 1}, {publishSize - 1, 1}, {4096, 1 << 20}} {
			if d := kit.DiffAt(pread(t, offer, []stretch{s})[s.off:][:s.n], 1, int64(s.off)); d >= 0 {
				t.Errorf("%d bytes at %d differ at %d", s.n, s.off, d)
			}
		}
		// Two readers of one half each do not consume it either.
		pread(t, offer, []stretch{{0, publishSize / 2}})
		pread(t, offer, []stretch{{publishSize / 2, publishSize - publishSize/2}})
		pread(t, offer, nil)
		view, unmap := mapping(t, offer, unix.MAP_SHARED)
		if d := kit.DiffAt(view[:10], 1, 0); d >= 0 {
			t.Errorf("the map differs at %d", d)
		}
		unmap()
		run(t, "head", "-c", "1000", offer)
		run(t, "cp", "--attributes-only", offer, p.path("attributes"))
		dir := p.m.Path("publish")
		for _, look := range [][]string{
			{"ls", "-lR", p.m.Dir},
			{"df", offer},
			{"df", dir},
			{"stat", offer},
			{"stat", "-f", dir},
			{"find", dir, "-type", "f", "-size", "+1"},
			{"du", "-a", dir},
			{"test", "-s", offer},
		} {
			run(t, look[0], look[1:]...)
		}
		if off, err := unix.Seek(int(open(t, offer, os.O_RDONLY).Fd()), 0, unix.SEEK_END); off != publishSize || err != nil {
			t.Errorf("its end is at %d, %v", off, err)
		}
		wantOffered(t, offer, 1, publishSize)
	})
}

// TestPublishMappedIsExclusive maps the file in one reader: the kernel's page cache is shared
// by all processes, so no other can read the file while it is open.
func TestPublishMappedIsExclusive(t *testing.T) {
	onDevices(t, func(t *testing.T, p place) {
		offer := p.publish(t, "t", 1, publishSize)
		view, unmap := mapping(t, offer, unix.MAP_SHARED)
		if d := kit.DiffAt(view[:10], 1, 0); d >= 0 {
			t.Errorf("the map differs at %d", d)
		}
		_, err := os.Open(offer)
		wantErrno(t, err, unix.EBUSY)
		unmap()
		wantOffered(t, offer, 1, publishSize)
	})
}

// TestPublishWithdrawn removes a publication, also while it is being read.
func TestPublishWithdrawn(t *testing.T) {
	onPublishers(t, func(t *testing.T, p place) {
		offer := p.publish(t, "t", 1, publishSize)
		run(t, "rm", offer)
		wantGone(t, offer)
		offer = p.publish(t, "t", 2, publishSize)
		f := open(t, offer, os.O_RDONLY)
		_, err := f.Read(make([]byte, 1000))
		must(t, err)
		must(t, os.Remove(offer))
		wantGone(t, offer)
		_, err = f.ReadAt(make([]byte, 1000), 1000)
		wantErrno(t, err, unix.EIO)
		must(t, f.Close())
		wantOffered(t, p.publish(t, "t", 3, 1000), 3, 1000)
	})
}

// A publication that a client has reserved can't be renamed, and is delivered to a waiting
// subscriber when that client ends without having received it.
func TestReservedByAClient(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	const size = 100_003
	for _, target := range []string{m.Path("sim0", "received"), filepath.Join(t.TempDir(), "received")} {
		must(t, os.WriteFile(m.Path("sim0", "k"), kit.Bytes(81, 0, size), 0o600))
		must(t, os.Rename(m.Path("sim0", "k"), m.Path("publish", "k")))
		holder, err := client.OpenSession(t.Context(), m.Client().Socket())
		must(t, err)
		_, err = holder.DevClaim(t.Context(), "k", hetero.ClaimOptions{})
		must(t, err)
		if err = os.Rename(m.Path("publish", "k"), m.Path("sim0", "k")); !errors.Is(err, unix.EBUSY) {
			t.Errorf("renamed while it is reserved: %v", err)
		}
		if out, failed := m.Run("subscribe", "--mount", m.Dir, "--timeout", "0.2s", "k="+target); failed == nil {
			t.Errorf("received by two: %s", out)
		}
		waits := m.Command("subscribe", "--mount", m.Dir, "--timeout", "60s", "k="+target)
		must(t, waits.Start())
		must(t, holder.Close())
		must(t, waits.Wait())
		got, err := os.ReadFile(target)
		must(t, err)
		if at := kit.DiffAt(got, 81, 0); at >= 0 || len(got) != size {
			t.Errorf("%d bytes, other ones from %d on", len(got), at)
		}
		must(t, os.Remove(target))
	}
}
