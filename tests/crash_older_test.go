package tests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestOlderRecords combines an older copy of the records with a host tier. A mount is refused
// and changes nothing. After fsck --repair no new file shows bytes that were not written to
// it, however it is created, and the bytes without records are kept aside and reported.
func TestOlderRecords(t *testing.T) {
	for name, copyBefore := range map[string]bool{"of an earlier mount": true, "of this mount": false} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			kit.Check(t)
			withoutUmask(t)
			m := mnt.Mount(t, mnt.Options{AllowOther: true, Extra: []string{"--cache-timeout", "0s"}})
			w := &olderRecords{t: t, m: m, copied: filepath.Join(filepath.Dir(m.StateDir), "copied")}
			w.prepare()
			m.AwaitWritten()
			if copyBefore {
				m.Kill()
				must(t, os.CopyFS(w.copied, os.DirFS(m.StateDir)))
				m.Start()
			} else {
				must(t, os.CopyFS(w.copied, os.DirFS(m.StateDir)))
			}
			for i := range olderSecrets {
				must(t, os.WriteFile(m.Path("host", fmt.Sprintf("secret-%d", i)), olderSecret(i), 0o600))
			}
			m.AwaitWritten()
			m.Kill()
			must(t, os.RemoveAll(m.StateDir))
			must(t, os.Rename(w.copied, m.StateDir))
			refuseMount(t, m, filepath.Join(m.StateDir, "metadata"), func() error { return nil })
			if out, err := m.Run("fsck", "--repair", "--state-dir", m.StateDir); !strings.Contains(out, "gone: ") {
				t.Errorf("fsck --repair = %v, and says\n%s", err, out)
			}
			m.Start()
			mnt.AsUser(t, userAlice(), w.make)
			w.told()
		})
	}
}

// olderSecrets is the number of files that root has created since the copy.
const olderSecrets = 100

func olderSecret(i int) []byte { return secrets(int64(i)<<20, 5000+i) }

type olderRecords struct {
	t      *testing.T
	m      *mnt.M
	copied string
}

// prepare creates the files that exist when the records are copied.
func (w *olderRecords) prepare() {
	w.t.Helper()
	for _, dev := range []string{"host", "sim0"} {
		must(w.t, os.WriteFile(w.m.Path(dev, "old"), kit.Bytes(1, 0, 3000), 0o666))
		must(w.t, os.WriteFile(w.m.Path(dev, "replaced"), kit.Bytes(2, 0, 3000), 0o666))
		must(w.t, os.Mkdir(w.m.Path(dev, "dir"), 0o777))
	}
}

// make lets the other user create files in each way repeatedly, so that each way reuses the
// inode numbers of root's files.
func (w *olderRecords) make() {
	own := kit.Bytes(5, 0, 1234)
	for round := range olderSecrets / 10 {
		for _, dev := range []string{"host", "sim0"} {
			dir := w.m.Path(dev, "dir")
			at := func(way string) string { return filepath.Join(dir, fmt.Sprintf("%s-%d", way, round)) }
			w.made("create", at("create"), nil, os.WriteFile(at("create"), nil, 0o600))
			w.made("mknod", at("mknod"), nil, unix.Mknod(at("mknod"), unix.S_IFREG|0o600, 0))
			w.made("write", at("write"), own, os.WriteFile(at("write"), own, 0o600))
			w.made("link", at("link"), own, os.Link(at("write"), at("link")))
			w.made("copy", at("copy"), own, copyWithin(at("write"), at("copy")))
			w.made("target of a rename", at("target"), nil, os.WriteFile(at("target"), nil, 0o600))
			w.made("rename onto", at("target"), own, os.Rename(at("copy"), at("target")))
			from := filepath.Join(w.m.Path(map[string]string{"host": "sim0", "sim0": "host"}[dev], "dir"), fmt.Sprintf("from-%d", round))
			w.made("source of a move", from, own, os.WriteFile(from, own, 0o600))
			w.made("move", at("move"), own, os.Rename(from, at("move")))
			key := fmt.Sprintf("older-%s-%d", dev, round)
			err := os.Rename(at("move"), w.m.Path("publish", key))
			w.made("receive", at("receive"), own, errors.Join(err, os.Rename(w.m.Path("publish", key), at("receive"))))
		}
	}
}

// copyWithin copies a file in one call.
func copyWithin(from, to string) error {
	if err := os.WriteFile(to, nil, 0o600); err != nil {
		return err
	}
	return withFile(from, os.O_RDONLY, func(src *os.File) error {
		return withFile(to, os.O_WRONLY, func(dst *os.File) error {
			for { // Go's own signals may interrupt it
				_, err := unix.CopyFileRange(int(src.Fd()), nil, int(dst.Fd()), nil, 1<<20, 0)
				if !errors.Is(err, unix.EINTR) {
					return err
				}
			}
		})
	})
}

// made checks that a file has its own bytes, followed by zeros when it grows.
func (w *olderRecords) made(way, path string, own []byte, err error) {
	if err != nil {
		w.t.Errorf("%s: %v", way, err)
		return
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, own) {
		w.t.Errorf("%s: %s has %d bytes, %v; they differ at %d", way, path, len(got), err, kit.FirstDiff(got, own))
		return
	}
	err = os.Truncate(path, 8000)
	if err == nil {
		got, err = os.ReadFile(path)
	}
	if want := append(bytes.Clone(own), make([]byte, 8000-len(own))...); err != nil || !bytes.Equal(got, want) {
		w.t.Errorf("%s: grown, %s has %d bytes, %v; they differ at %d", way, path, len(got), err, kit.FirstDiff(got, want))
	}
	if err = os.Truncate(path, int64(len(own))); err != nil {
		w.t.Errorf("%s: cut %s: %v", way, path, err)
	}
}

// told checks that root's bytes are kept aside and reported, and removed on request.
func (w *olderRecords) told() {
	w.t.Helper()
	out, err := w.m.Run("fsck", w.m.Dir)
	if err == nil || strings.Count(out, "set aside") < olderSecrets {
		w.t.Errorf("fsck = %v, and says\n%s", err, out)
	}
	dir := filepath.Join(w.m.RuntimeDir, "host", "aside")
	names, err := os.ReadDir(dir)
	must(w.t, err)
	var all []byte
	for _, n := range names {
		p, rerr := os.ReadFile(filepath.Join(dir, n.Name()))
		must(w.t, rerr)
		all = append(all, p...)
	}
	for i := range olderSecrets {
		if !bytes.Contains(all, olderSecret(i)) {
			w.t.Errorf("the bytes of secret-%d are gone", i)
		}
	}
	if !strings.Contains(w.m.Log(), "hmcfs fsck "+w.m.Dir) {
		w.t.Errorf("the log names no way out:\n%s", w.m.Log())
	}
	if out, err = w.m.Run("status", w.m.Dir); err != nil || !strings.Contains(out, "set aside") {
		w.t.Errorf("status = %v, and says\n%s", err, out)
	}
	if out, err = w.m.Run("fsck", "--remove-aside", "--remove-lost", w.m.Dir); err != nil {
		w.t.Errorf("fsck --remove-aside = %v, and says\n%s", err, out)
	}
	if names, err = os.ReadDir(dir); err != nil || len(names) > 0 {
		w.t.Errorf("after it %d files are aside, %v", len(names), err)
	}
	if out, err = w.m.Run("fsck", w.m.Dir); err != nil {
		w.t.Errorf("fsck after it = %v, and says\n%s", err, out)
	}
}
