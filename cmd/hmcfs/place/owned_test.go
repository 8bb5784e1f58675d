package place

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// put creates a file, and the directories above it.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// lay creates a directory with a mode and contents.
func lay(t *testing.T, dir string, mode os.FileMode, content func(*testing.T, string)) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	content(t, dir)
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
}

// takeTwice takes a directory, or expects an error with a text, twice.
func takeTwice(t *testing.T, dir string, mode os.FileMode, refused string) {
	t.Helper()
	for range 2 {
		err := take(dir, os.Geteuid(), mode)
		if (err != nil) != (refused != "") || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("take: %v; want %q", err, refused)
		}
	}
}

// TestTake takes existing directories, or refuses them and leaves them unchanged.
func TestTake(t *testing.T) {
	note, err := json.Marshal(Holder{PID: 1, MountPoint: "/m"})
	if err != nil {
		t.Fatal(err)
	}
	files := func(all ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			for i := 0; i < len(all); i += 2 {
				put(t, dir, all[i], all[i+1])
			}
		}
	}
	for _, tc := range []struct {
		name    string
		mode    os.FileMode
		content func(*testing.T, string)
		want    os.FileMode // the mode to take it with
		refused string      // or the text of the error
		then    os.FileMode // its mode afterwards
		left    bool        // it still exists after leave
	}{
		{name: "not there", want: 0o700, then: 0o700},
		{name: "empty", mode: 0o755, content: files(), want: 0o700, then: 0o755, left: true},
		{name: "empty, open to all", mode: 0o777, content: files(), want: 0o700, refused: "chmod go-w", then: 0o777},
		{name: "empty, to be passed through", mode: 0o700, content: files(), want: 0o711, refused: "chmod o+x", then: 0o700},
		{name: "somebody's files", mode: 0o755, content: files("metadata/thesis.txt", "x"), want: 0o700, refused: "not empty", then: 0o755},
		{name: "a lock that says nothing", mode: 0o755, content: files("lock", "", "metadata/x", ""), want: 0o700, refused: "not empty", then: 0o755},
		{name: "of a daemon without marks", mode: 0o755, content: files("lock", string(note), "metadata/x", ""), want: 0o700, then: 0o755, left: true},
		{name: "ours", mode: 0o711, content: files(markName, made), want: 0o700, then: 0o700},
		{name: "found before", mode: 0o750, content: files(markName, found), want: 0o700, then: 0o750, left: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			if tc.content != nil {
				lay(t, dir, tc.mode, tc.content)
			}
			takeTwice(t, dir, tc.want, tc.refused)
			if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != tc.then {
				t.Fatalf("it is %v afterwards, %v; want mode %o", st, err, tc.then)
			}
			if tc.refused != "" {
				return
			}
			for _, name := range []string{"lock", "metadata"} {
				_ = os.RemoveAll(filepath.Join(dir, name))
			}
			leave(dir)
			if _, err := os.Stat(dir); (err == nil) != tc.left {
				t.Errorf("after it was left: %v; want it to stay: %t", err, tc.left)
			}
		})
	}
}

// TestFindBelieves looks for directories that another user has created, or can write to.
func TestFindBelieves(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make what belongs to others")
	}
	const owner, other = 4711, 4712
	for _, tc := range []struct {
		name    string
		base    int
		mode    os.FileMode
		runtime int
		doubted string // the end of the untrusted path
	}{
		{"the owner's", owner, 0o711, owner, ""},
		{"root's", 0, 0o755, 0, ""},
		{"of another user", other, 0o711, owner, "/hmcfs"},
		{"open to all", owner, 0o777, owner, "/hmcfs"},
		{"a link to another user's", owner, 0o711, other, "/run"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			base, runtime := filepath.Join(dir, "hmcfs"), filepath.Join(dir, "run")
			err := errors.Join(os.Mkdir(base, 0o700), os.Mkdir(runtime, 0o700), os.Symlink(runtime, filepath.Join(base, "m")),
				os.Chmod(base, tc.mode), os.Chown(base, tc.base, -1), os.Chown(runtime, tc.runtime, -1))
			if err != nil {
				t.Fatal(err)
			}
			places, doubt := Host{UID: owner, Getenv: env(map[string]string{"XDG_RUNTIME_DIR": dir})}.Find("/m", owner)
			believed := len(places) > 0 && places[0].Runtime == runtime
			if believed != (tc.doubted == "") || believed != (doubt == nil) || doubt != nil && !strings.Contains(doubt.Error(), dir+tc.doubted) {
				t.Errorf("found %+v, doubt %v", places, doubt)
			}
		})
	}
}

// TestLockIsAFile tries a lock whose open would block, and one that is a link.
func TestLockIsAFile(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	put(t, dir, "target", "")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Symlink("target", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link} {
		if _, _, err := ReadHolder(path); err == nil {
			t.Errorf("read %s", path)
		}
		if _, err := Acquire(path, Holder{}); err == nil {
			t.Errorf("acquired %s", path)
		}
	}
}

// TestRemoveMetadata removes records next to those that a killed daemon was removing.
func TestRemoveMetadata(t *testing.T) {
	p := Paths{State: t.TempDir()}
	for range 2 {
		put(t, p.State, "metadata.removed/old/000001.vlog", "x")
		put(t, p.State, "metadata/MANIFEST", "x")
		if err := p.RemoveMetadata(); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(p.State); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
	if err := p.RemoveMetadata(); err != nil {
		t.Errorf("without records: %v", err)
	}
}
