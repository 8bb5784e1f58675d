package tests

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/conformance/heterotest"
	"github.com/hmcfs/hmcfs/tests/keyworld"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// sharer is a program with registered memory.
type sharer struct {
	peer   heterotest.Peer
	memory heterotest.Memory
	list   []hetero.DeviceBlobList
}

// newSharer creates a program with n bytes of a device's memory.
func newSharer(t *testing.T, m *mnt.M, device string, seed uint64, n int) *sharer {
	t.Helper()
	world := keyworld.New(filepath.Join(m.RuntimeDir, "admin.sock"), keyworld.Options{Devices: []devices.Name{devices.Name(device)}})
	s := &sharer{peer: world.Join(t)}
	s.memory = s.peer.Memory(t, devices.Name(device), devices.Size(n))
	s.memory.Write(t, 0, kit.Bytes(seed, 0, n))
	s.list = []hetero.DeviceBlobList{{Device: devices.Name(device), Blobs: []hetero.Blob{{Memory: s.memory.ID(), Size: devices.Size(n)}}}}
	return s
}

func (s *sharer) publish(t *testing.T, key string) *hetero.Future {
	t.Helper()
	futures, err := s.peer.Client().DevPublish(t.Context(), []string{key}, s.list)
	must(t, err)
	return futures[0]
}

// ended waits for a future and returns its error.
func ended(t *testing.T, f *hetero.Future) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), mntPatience)
	defer cancel()
	return f.Wait(ctx)
}

// TestPublishedMemoryIsReceivedInTheMount lets a program publish its memory, and receives it
// by mv and by reading. Later writes of the program do not affect the received file.
func TestPublishedMemoryIsReceivedInTheMount(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	for _, device := range []string{"host", "sim0"} {
		t.Run(device, func(t *testing.T) {
			s := newSharer(t, m, device, 1, publishSize)
			offer := m.Path("publish", "of-"+device)
			for _, to := range []string{m.Path("host", "received"), m.Path("sim0", "received"), m.Path("sim1", "received")} {
				future := s.publish(t, "of-"+device)
				pread(t, offer, []stretch{{0, publishSize - 1}})
				run(t, "mv", offer, to)
				must(t, ended(t, future))
				wantGone(t, offer)
				s.memory.Write(t, 0, kit.Bytes(2, 0, publishSize))
				wantContent(t, to, 1, publishSize)
				wantXattr(t, to, "user.hmc.state", "live")
				must(t, os.Remove(to))
				s.memory.Write(t, 0, kit.Bytes(1, 0, publishSize))
			}
			future := s.publish(t, "of-"+device)
			wantOffered(t, offer, 1, publishSize)
			must(t, ended(t, future))
			// Withdrawn by rm, and by the program's death.
			future = s.publish(t, "of-"+device)
			must(t, os.Remove(offer))
			if err := ended(t, future); err == nil {
				t.Error("a withdrawn publication was received")
			}
			s.publish(t, "of-"+device)
			f := open(t, offer, os.O_RDONLY)
			_, err := f.Read(make([]byte, 1000))
			must(t, err)
			s.peer.Kill(t)
			wantGoneSoon(t, offer)
			_, err = f.ReadAt(make([]byte, publishSize), 0)
			wantErrno(t, err, unix.EIO)
			must(t, f.Close())
		})
	}
}

// TestKeyedObjectsAreSeenAtOnce creates, replaces and removes objects under a key, and checks
// the mount before and after each change.
func TestKeyedObjectsAreSeenAtOnce(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	link, object := m.Path("keys", "k"), m.Path("host", ".keys", "k")
	s := newSharer(t, m, "sim0", 1, 100_000)
	gather := func() {
		t.Helper()
		results, err := s.peer.Client().MSetD2H(t.Context(), []string{"k"}, s.list, hetero.SetOptions{Existing: hetero.ExistingReplace})
		must(t, err)
		must(t, results[0].Err)
	}
	for range 2 {
		for _, path := range []string{link, object} {
			_, err := os.Open(path)
			wantErrno(t, err, unix.ENOENT)
		}
		gather()
		wantContent(t, link, 1, 100_000)
		wantContent(t, object, 1, 100_000)
		old := open(t, object, os.O_RDONLY)
		s.memory.Write(t, 0, kit.Bytes(2, 0, 100_000))
		gather()
		wantContent(t, link, 2, 100_000)
		wantContent(t, object, 2, 100_000)
		got := make([]byte, 100_000)
		_, err := old.ReadAt(got, 0)
		must(t, err)
		if d := kit.DiffAt(got, 1, 0); d >= 0 {
			t.Errorf("the old object differs at %d", d)
		}
		must(t, old.Close())
		_, err = s.peer.Client().Delete(t.Context(), []string{"k"})
		must(t, err)
		for _, path := range []string{link, object} {
			_, err := os.Open(path)
			wantErrno(t, err, unix.ENOENT)
		}
		s.memory.Write(t, 0, kit.Bytes(1, 0, 100_000))
	}
	// Only hmcfs creates names there, but any user with the right may remove them.
	gather()
	create(t, m.Path("host", "f"), 3, 10)
	for _, err := range []error{
		os.Rename(m.Path("host", "f"), object), os.Link(m.Path("host", "f"), m.Path("host", ".keys", "l")),
		os.Mkdir(m.Path("host", ".keys", "d"), 0o755), os.Rename(object, m.Path("host", ".keys", "other")),
		os.Rename(m.Path("host", ".keys"), m.Path("host", "mine")),
	} {
		wantErrno(t, err, unix.EPERM)
	}
	must(t, os.Rename(object, m.Path("host", "mine")))
	wantContent(t, link, 1, 100_000)
	must(t, os.Remove(m.Path("host", "mine")))
	_, err := os.Lstat(link)
	wantErrno(t, err, unix.ENOENT)
}
