package tests

import (
	"io"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestKeysAreSeenAtOnce looks up a key before and after each change: the kernel caches neither
// its existence nor its absence.
func TestKeysAreSeenAtOnce(t *testing.T) {
	onDevices(t, func(t *testing.T, p place) {
		key := "key-of-" + p.name
		link := p.m.Path("keys", key)
		create(t, p.path("f"), 1, 1000)
		create(t, p.path("g"), 2, 1000)
		for range 2 {
			for seed, file := range []string{p.path("f"), p.path("g")} {
				_, err := os.Open(link)
				wantErrno(t, err, unix.ENOENT)
				run(t, "setfattr", "-n", "user.hmc.key", "-v", key, file)
				wantContent(t, link, uint64(seed+1), 1000)
				_, err = p.m.Run("del", "--mount", p.m.Dir, key)
				must(t, err)
				_, err = os.Lstat(link)
				wantErrno(t, err, unix.ENOENT)
				wantNoXattr(t, file, "user.hmc.key")
			}
		}
		wantContent(t, p.path("f"), 1, 1000)
	})
}

// TestTTL sets the expiry of files and checks that they expire, although the kernel has cached
// their names.
func TestTTL(t *testing.T) {
	onDevices(t, func(t *testing.T, p place) {
		f := p.path("f")
		create(t, f, 1, 1000)
		wantNoXattr(t, f, "user.hmc.ttl")
		for _, bad := range []string{"", "x", "-1", "1.5", "1h"} {
			wantErrno(t, unix.Setxattr(f, "user.hmc.ttl", []byte(bad), 0), unix.EINVAL)
		}
		run(t, "setfattr", "-n", "user.hmc.ttl", "-v", "3600", f)
		left, err := getxattr(f, "user.hmc.ttl")
		must(t, err)
		n, err := strconv.Atoi(left)
		if must(t, err); n < 1 || n > 3600 {
			t.Errorf("%d seconds are left", n)
		}
		must(t, unix.Removexattr(f, "user.hmc.ttl"))
		wantNoXattr(t, f, "user.hmc.ttl")

		// Both are open when they expire; the attributes of one are read meanwhile.
		h := open(t, f, os.O_RDONLY)
		create(t, p.path("closed"), 2, 1000)
		wantContent(t, p.path("closed"), 2, 1000)
		must(t, unix.Setxattr(f, "user.hmc.ttl", []byte("1s"), 0))
		must(t, unix.Setxattr(p.path("closed"), "user.hmc.ttl", []byte("1"), 0))
		wantGoneSoon(t, p.path("closed"))
		kit.Eventually(t, mntPatience, func() bool { return len(namesIn(t, p.dir)) == 0 })
		_, err = os.Open(f)
		wantErrno(t, err, unix.ENOENT)
		got, err := io.ReadAll(h)
		must(t, err)
		if d := kit.DiffAt(got, 1, 0); len(got) != 1000 || d >= 0 {
			t.Errorf("the open file has %d bytes, which differ at %d", len(got), d)
		}
		if st, err := h.Stat(); err != nil || st.Size() != 1000 {
			t.Errorf("stat of the open file: %v", err)
		}
		must(t, h.Close())
		// Their names can be reused.
		create(t, f, 3, 2000)
		wantContent(t, f, 3, 2000)
		must(t, os.Mkdir(p.path("closed"), 0o755))
	})
}

// TestTTLOfWhatIsPublished checks that a publication expires.
func TestTTLOfWhatIsPublished(t *testing.T) {
	onDevices(t, func(t *testing.T, p place) {
		create(t, p.path("f"), 1, 1000)
		must(t, unix.Setxattr(p.path("f"), "user.hmc.ttl", []byte("1"), 0))
		offer := p.m.Path("publish", "t")
		must(t, os.Rename(p.path("f"), offer))
		wantGoneSoon(t, offer)
		wantOffered(t, p.publish(t, "t", 2, 1000), 2, 1000)
	})
}
