package tests

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPublishMovesNoByte publishes by mv and receives by mv: on the file's own device only
// names change, to another device the bytes are copied.
func TestPublishMovesNoByte(t *testing.T) {
	onPublishers(t, func(t *testing.T, p place) {
		create(t, p.path("f"), 1, publishSize)
		ino := lstat(t, p.path("f")).Ino
		offer := p.m.Path("publish", "t")
		before := bytesMoved(p.m)
		for range 3 {
			run(t, "mv", p.path("f"), offer)
			if got := namesIn(t, p.m.Path("publish")); !slices.Equal(got, []string{"t"}) {
				t.Errorf("publish/ has %q", got)
			}
			if _, err := os.Lstat(p.path("f")); !os.IsNotExist(err) {
				t.Errorf("the file has its old name too: %v", err)
			}
			if st := lstat(t, offer); st.Ino != ino || st.Size != publishSize {
				t.Errorf("inode %d of %d bytes is published, it was %d", st.Ino, st.Size, ino)
			}
			wantXattr(t, offer, "user.hmc.device", p.name)
			run(t, "mv", offer, p.path("f"))
			wantGone(t, offer)
			if st := lstat(t, p.path("f")); st.Ino != ino {
				t.Errorf("inode %d was received, it was %d", st.Ino, ino)
			}
		}
		if now := bytesMoved(p.m); now != before {
			t.Errorf("%d bytes moved", now-before)
		}
		wantContent(t, p.path("f"), 1, publishSize)
		// It is an ordinary file again.
		must(t, os.WriteFile(p.path("f"), []byte("new"), 0o644))
		must(t, os.Truncate(p.path("f"), 100))
	})
}

// TestPublishReceivedOnAnotherDevice receives by mv to another device than the one with the
// bytes, also over an existing file.
func TestPublishReceivedOnAnotherDevice(t *testing.T) {
	onPublishers(t, func(t *testing.T, p place) {
		for seed, target := range []string{"new", "over"} {
			to := p.other() + "/" + target
			if target == "over" {
				create(t, to, 9, 1000)
			}
			offer := p.publish(t, "t", uint64(seed), publishSize)
			run(t, "mv", offer, to)
			wantGone(t, offer)
			wantContent(t, to, uint64(seed), publishSize)
			must(t, os.Remove(to))
		}
	})
}

// TestPublishRefuses tries all operations that make no sense in publish/, after which the
// publication is still complete.
func TestPublishRefuses(t *testing.T) {
	onPublishers(t, func(t *testing.T, p place) {
		offer := p.publish(t, "t", 1, publishSize)
		dir := p.m.Path("publish")
		in := p.m.Path("publish", "x")
		t.Run("names", func(t *testing.T) {
			_, err := os.Create(in)
			wantErrno(t, err, unix.EPERM)
			wantErrno(t, os.Mkdir(in, 0o755), unix.EPERM)
			wantErrno(t, os.Symlink("x", in), unix.EPERM)
			wantErrno(t, unix.Mkfifo(in, 0o644), unix.EPERM)
			wantErrno(t, os.Link(offer, in), unix.EPERM)
			wantErrno(t, os.Link(offer, p.path("x")), unix.EPERM)
			wantErrno(t, os.Rename(offer, in), unix.EPERM)
			create(t, p.path("f"), 2, 10)
			wantErrno(t, os.Link(p.path("f"), in), unix.EPERM)
			wantErrno(t, os.Rename(p.path("f"), offer), unix.EEXIST)
			for _, pair := range [][2]string{{p.path("f"), offer}, {offer, p.path("f")}} {
				wantErrno(t, unix.Renameat2(unix.AT_FDCWD, pair[0], unix.AT_FDCWD, pair[1], unix.RENAME_EXCHANGE), unix.EPERM)
			}
			must(t, os.Mkdir(p.path("d"), 0o755))
			wantErrno(t, os.Rename(p.path("d"), in), unix.EISDIR)
			must(t, os.Symlink("f", p.path("l")))
			wantErrno(t, os.Rename(p.path("l"), in), unix.EINVAL)
			must(t, os.Link(p.path("f"), p.path("g")))
			wantErrno(t, os.Rename(p.path("f"), in), unix.EMLINK)
			wantContent(t, p.path("f"), 2, 10)
		})
		t.Run("contents", func(t *testing.T) {
			for _, flags := range []int{os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_CREATE} {
				_, err := os.OpenFile(offer, flags, 0)
				wantErrno(t, err, unix.EPERM)
			}
			wantErrno(t, os.Truncate(offer, 1), unix.EPERM)
			wantErrno(t, os.Truncate(offer, publishSize), unix.EPERM)
			wantErrno(t, unix.Setxattr(offer, "user.hmc.key", []byte("k"), 0), unix.EPERM)
		})
		t.Run("an empty one", func(t *testing.T) {
			empty := p.publish(t, "empty", 1, 0)
			for _, flags := range []int{os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC} {
				_, err := os.OpenFile(empty, flags, 0)
				wantErrno(t, err, unix.EPERM)
			}
			wantOffered(t, empty, 1, 0)
		})
		t.Run("publish itself", func(t *testing.T) {
			wantErrno(t, os.Chmod(dir, 0o700), unix.EPERM)
			wantErrno(t, os.Chown(dir, 1, 1), unix.EPERM)
			wantErrno(t, unix.Setxattr(dir, "user.a", []byte("1"), 0), unix.EPERM)
			wantErrno(t, os.Rename(dir, p.path("p")), unix.EPERM)
			wantErrno(t, os.Remove(dir), unix.EPERM)
		})
		// Operations on the inode and not on its bytes work as for any file.
		must(t, os.Chmod(offer, 0o640))
		must(t, unix.Setxattr(offer, "user.a", []byte("1"), 0))
		wantOffered(t, offer, 1, publishSize)
	})
}

// TestPublishBusy publishes files that are open or mapped: this is refused with an error after
// which mv does not fall back to copying. It waits for a file that is just being closed.
func TestPublishBusy(t *testing.T) {
	onPublishers(t, func(t *testing.T, p place) {
		create(t, p.path("f"), 1, publishSize)
		offer := p.m.Path("publish", "t")
		for _, flags := range []int{os.O_RDONLY, os.O_RDWR} {
			f := open(t, p.path("f"), flags)
			wantErrno(t, os.Rename(p.path("f"), offer), unix.EBUSY)
			must(t, f.Close())
		}
		for _, flags := range []int{unix.MAP_SHARED, unix.MAP_PRIVATE} {
			view, unmap := mapping(t, p.path("f"), flags)
			wantErrno(t, os.Rename(p.path("f"), offer), unix.EBUSY)
			_ = view[publishSize-1]
			wantErrno(t, os.Rename(p.path("f"), offer), unix.EBUSY)
			unmap()
		}
		if got := namesIn(t, p.m.Path("publish")); len(got) != 0 {
			t.Errorf("publish/ has %q", got)
		}
		must(t, os.Rename(p.path("f"), offer))
		wantOffered(t, offer, 1, publishSize)
	})
}

// TestKeyedDirectoryIsHmcfs tries to create names in the directory of keyed objects.
func TestKeyedDirectoryIsHmcfs(t *testing.T) {
	onDevices(t, func(t *testing.T, p place) {
		keyed := p.m.Path(p.name, ".keys")
		create(t, p.path("f"), 1, 10)
		wantErrno(t, os.Mkdir(keyed, 0o755), unix.EPERM)
		_, err := os.Create(keyed)
		wantErrno(t, err, unix.EPERM)
		wantErrno(t, os.Rename(p.path("f"), keyed), unix.EPERM)
		wantErrno(t, os.Symlink("x", keyed), unix.EPERM)
		// Elsewhere it is a name like any other.
		must(t, os.Mkdir(p.path(".keys"), 0o755))
		must(t, os.Rename(p.path("f"), p.path(".keys", "f")))
	})
}
