package tests

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestPublishFollowsModes lets users publish for each other, and try to access what is not for
// them.
func TestPublishFollowsModes(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{AllowOther: true, Devices: []string{"host,size=64MiB", "sim:0,size=64MiB", "sim:1,size=64MiB,mapped=true"}})
	if got := mode(t, m.Path("publish")); got != 0o1777 {
		t.Errorf("publish/ has mode %o", got)
	}
	for _, name := range []string{"host", "sim0", "sim1"} {
		t.Run(name, func(t *testing.T) { publishByModes(t, m, name) })
	}
}

func publishByModes(t *testing.T, m *mnt.M, name string) {
	t.Helper()
	dir, bobs := openDir(t, m.Path(name)), openDir(t, m.Path(name))
	offer := m.Path("publish", "t")
	offers := func(mode os.FileMode, seed uint64) {
		mnt.AsUser(t, userAlice(), func() {
			made := filepath.Join(dir, "made")
			if err := os.WriteFile(made, kit.Bytes(seed, 0, 10_000), mode); err != nil {
				t.Error(err)
			}
			if err := os.Rename(made, offer); err != nil {
				t.Error(err)
			}
		})
	}
	offers(0o600, 1)
	mnt.AsUser(t, userBob(), func() {
		_, err := os.Open(offer)
		wantErrno(t, err, unix.EACCES)
		wantErrno(t, os.Remove(offer), unix.EPERM)
		wantErrno(t, os.Rename(offer, filepath.Join(bobs, "mine")), unix.EPERM)
		wantErrno(t, os.Chmod(offer, 0o644), unix.EPERM)
		if err := os.WriteFile(filepath.Join(bobs, "f"), nil, 0o644); err != nil {
			t.Error(err)
		}
		wantErrno(t, os.Rename(filepath.Join(bobs, "f"), offer), unix.EPERM)
	})
	// To receive is to remove: the right to read is not sufficient.
	alices := func(mode os.FileMode) {
		mnt.AsUser(t, userAlice(), func() {
			if err := os.Chmod(offer, mode); err != nil {
				t.Error(err)
			}
		})
	}
	alices(0o644)
	mnt.AsUser(t, userBob(), func() {
		_, err := os.ReadFile(offer)
		wantErrno(t, err, unix.EPERM)
	})
	if st, err := os.Stat(offer); err != nil || st.Size() != 10_000 {
		t.Errorf("bob has taken it: %v", err)
	}
	if err := claimAsBob(t, m, "t"); !errors.Is(err, hetero.ErrNotAuthorized) {
		t.Errorf("bob's claim over the socket: %v", err)
	}
	// A user that may read and write may receive.
	alices(0o666)
	if err := claimAsBob(t, m, "t"); err != nil {
		t.Errorf("bob's claim of what he may write: %v", err)
	}
	mnt.AsUser(t, userBob(), func() {
		got, err := os.ReadFile(offer)
		if d := kit.DiffAt(got, 1, 0); err != nil || len(got) != 10_000 || d >= 0 {
			t.Errorf("bob has %d bytes, which differ at %d: %v", len(got), d, err)
		}
	})
	wantGone(t, offer)
	offers(0o600, 2)
	mnt.AsUser(t, userAlice(), func() {
		if err := os.Rename(offer, filepath.Join(dir, "back")); err != nil {
			t.Error(err)
		}
	})
	wantContent(t, filepath.Join(dir, "back"), 2, 10_000)
}

// claimAsBob reserves a publication over the socket, and releases it.
func claimAsBob(t *testing.T, m *mnt.M, key string) (err error) {
	t.Helper()
	mnt.AsUser(t, userBob(), func() {
		s, oerr := client.OpenSession(t.Context(), socketOf(m))
		if oerr != nil {
			t.Error(oerr)
			return
		}
		if _, err = s.DevClaim(t.Context(), key, hetero.ClaimOptions{}); err == nil {
			err = s.DevSettle(t.Context(), key, false)
		}
		if cerr := s.Close(); cerr != nil {
			t.Error(cerr)
		}
	})
	return err
}
