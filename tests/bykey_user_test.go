package tests

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/mnt"
)

// asAlice runs a command as alice.
func asAlice(m *mnt.M, args ...string) (string, error) {
	cmd := m.Command(append(args, "--mount", m.Dir)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: userAlice().Credential()}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestKeysGoNoFurtherThanPaths lets alice access, by key, files that root keeps in closed
// directories, and set the expiry of files that she may write but not remove.
func TestKeysGoNoFurtherThanPaths(t *testing.T) {
	withoutUmask(t)
	onBoth(t, func(t *testing.T, p place) {
		const n = 4096
		for _, dir := range []struct {
			name string
			mode os.FileMode
		}{{"closed", 0o700}, {"shared", 0o755}, {"sticky", 0o777 | os.ModeSticky}, {"open", 0o777}} {
			must(t, os.Mkdir(p.path(dir.name), 0o700))
			f := p.path(dir.name, "f")
			create(t, f, 1, n)
			must(t, os.Chmod(f, 0o666))
			must(t, os.Chmod(p.path(dir.name), dir.mode))
			_, err := p.m.Run("mset", dir.name+"="+f)
			must(t, err)
		}
		for _, c := range []struct {
			key        string
			uses, ends bool
		}{{key: "closed"}, {key: "shared", uses: true}, {key: "sticky", uses: true}, {key: "open", uses: true, ends: true}} {
			f := p.path(c.key, "f")
			for _, ask := range []struct {
				may  bool
				args []string
			}{
				{c.uses, []string{"mget", c.key}},
				{c.ends, []string{"expire", "--ttl", "1h", c.key}},
				{c.uses, []string{"expire", "--ttl", "0", c.key}},
				{c.uses, []string{"del", c.key}},
			} {
				out, err := asAlice(p.m, ask.args...)
				if (err == nil) != ask.may || err != nil && !strings.Contains(out, "not permitted") && !strings.Contains(out, "permission denied") {
					t.Errorf("%s: %v: %q", ask.args, err, out)
				}
			}
			want := error(unix.EPERM)
			switch {
			case c.ends:
				want = nil
			case !c.uses:
				want = unix.EACCES
			}
			mnt.AsUser(t, userAlice(), func() {
				if err := unix.Setxattr(f, "user.hmc.ttl", []byte("1000"), 0); !errors.Is(err, want) {
					t.Errorf("ttl of %s: %v, want %v", f, err, want)
				}
			})
			wantContent(t, f, 1, n)
			must(t, os.RemoveAll(p.path(c.key)))
		}
	})
}
