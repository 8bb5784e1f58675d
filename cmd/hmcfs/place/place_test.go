package place

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func env(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestEscapeIsDifferentForEveryPath(t *testing.T) {
	paths := []string{
		"/", "/a", "/a/b", "/a-b", "/a%2Db", "/a b", "/a/.b", "/.a", "/mnt/hmc", "/mnt/hmc2", "/ä",
		"/" + strings.Repeat("x", 200), "/y" + strings.Repeat("x", 199), "/" + strings.Repeat("x", 200) + "/z",
	}
	seen := map[string]string{}
	for _, p := range paths {
		name := Escape(p)
		if other, twice := seen[name]; twice {
			t.Errorf("%q and %q are both %q", p, other, name)
		}
		seen[name] = p
		if strings.ContainsAny(name, "/ ") || len(name) > 48 || name == "." || name == ".." {
			t.Errorf("Escape(%q) = %q", p, name)
		}
	}
	if got := Escape("/mnt/hmc"); got != "mnt-hmc" {
		t.Errorf("Escape(/mnt/hmc) = %q", got)
	}
}

func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		uid                        int
		env                        map[string]string
		state, runtime             string
		wantState, wantRun, wantAt string
	}{
		"root":       {wantState: "/var/lib/hmcfs/mnt-hmc", wantRun: "/run/hmcfs/mnt-hmc", wantAt: "/run/hmcfs/mnt-hmc"},
		"given":      {state: "/s", runtime: "/r", wantState: "/s", wantRun: "/r", wantAt: "/run/hmcfs/mnt-hmc"},
		"user":       {uid: 5, env: map[string]string{"HOME": "/h"}, wantState: "/h/.local/state/hmcfs/mnt-hmc", wantRun: filepath.Join(os.TempDir(), "hmcfs-5/mnt-hmc"), wantAt: filepath.Join(os.TempDir(), "hmcfs-5/mnt-hmc")},
		"user's XDG": {uid: 5, env: map[string]string{"XDG_STATE_HOME": "/x", "XDG_RUNTIME_DIR": "/y"}, wantState: "/x/hmcfs/mnt-hmc", wantRun: "/y/hmcfs/mnt-hmc", wantAt: "/y/hmcfs/mnt-hmc"},
		"root's XDG": {env: map[string]string{"XDG_STATE_HOME": "/x", "XDG_RUNTIME_DIR": "/y"}, wantState: "/x/hmcfs/mnt-hmc", wantRun: "/run/hmcfs/mnt-hmc", wantAt: "/run/hmcfs/mnt-hmc"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Host{UID: c.uid, Getenv: env(c.env)}.Of("/mnt/hmc", c.state, c.runtime)
			if err != nil || p.State != c.wantState || p.Runtime != c.wantRun || p.DefaultRuntime != c.wantAt {
				t.Errorf("places %+v, %v", p, err)
			}
		})
	}
	if _, err := (Host{UID: 5, Getenv: env(nil)}).Of("/m", "", ""); err == nil {
		t.Error("a user without a home got a state directory")
	}
}

func TestPrepareAndClean(t *testing.T) {
	dir := t.TempDir()
	h := Host{UID: os.Geteuid(), Getenv: env(map[string]string{"XDG_RUNTIME_DIR": dir})}
	p := Paths{State: filepath.Join(dir, "s", "state"), Runtime: filepath.Join(dir, "own"), DefaultRuntime: filepath.Join(dir, "hmcfs", "m")}
	if err := p.Prepare(os.Geteuid(), false); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{p.State, p.Runtime} {
		if st, err := os.Stat(d); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", d, st, err)
		}
	}
	if err := p.Prepare(os.Geteuid(), true); err != nil {
		t.Fatal(err)
	}
	for d, want := range map[string]os.FileMode{p.State: 0o700, p.Runtime: 0o711, filepath.Dir(p.DefaultRuntime): 0o711} {
		if st, err := os.Stat(d); err != nil || st.Mode().Perm() != want {
			t.Errorf("with others let in, %s: %v, %v", d, st, err)
		}
	}
	if h.UID != 0 {
		if found, doubt := h.Find("/m", h.UID); doubt != nil || found[0].Runtime != p.Runtime {
			t.Errorf("found %+v, %v", found, doubt)
		}
	}
	if got := followLink(p.DefaultRuntime); got != p.Runtime {
		t.Errorf("the link leads to %s", got)
	}
	if err := p.Prepare(os.Geteuid(), false); err != nil {
		t.Errorf("again: %v", err)
	}
	p.Clean()
	if _, err := os.Lstat(p.DefaultRuntime); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link is still there: %v", err)
	}
	if err := p.Prepare(os.Geteuid()+1, false); err == nil || !strings.Contains(err.Error(), "belongs to user") {
		t.Errorf("directory of another user: %v", err)
	}
	p.Runtime = filepath.Join(dir, strings.Repeat("x", 100))
	if err := p.Prepare(os.Geteuid(), false); err == nil || !strings.Contains(err.Error(), "too long for a socket's path") {
		t.Errorf("long directory: %v", err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	me := Holder{PID: os.Getpid(), MountPoint: "/m"}
	l, err := Acquire(path, me)
	if err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if _, err = Acquire(path, Holder{PID: 1}); !errors.As(err, &held) || held.Holder != me {
		t.Errorf("second lock: %v", err)
	}
	if h, living, herr := ReadHolder(path); h != me || !living || herr != nil {
		t.Errorf("holder %+v, living %t, %v", h, living, herr)
	}
	l.Release()
	if h, living, herr := ReadHolder(path); h != me || living || herr != nil {
		t.Errorf("after the release: holder %+v, living %t, %v", h, living, herr)
	}
	if err = AwaitEnd(t.Context(), os.Getpid(), path, time.Second); err != nil {
		t.Error(err)
	}
	l, err = Acquire(path, Holder{PID: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := AwaitEnd(t.Context(), os.Getpid(), path, 20*time.Millisecond); err == nil {
		t.Error("AwaitEnd did not wait for the lock")
	}
	l.Remove()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock file is still there: %v", err)
	}
}

// TestHolderBetweenLockAndNote reads a lock whose new holder has not written its note yet: that of the
// last one, which has ended, is not the answer.
func TestHolderBetweenLockAndNote(t *testing.T) {
	last := Holder{PID: ended(t), MountPoint: "/m"}
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Acquire(path, last)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	me := Holder{PID: os.Getpid(), MountPoint: "/m"}
	late := time.AfterFunc(20*time.Millisecond, func() {
		if err := l.write(me); err != nil {
			t.Error(err)
		}
	})
	defer late.Stop()
	if h, living, err := ReadHolder(path); h != me || !living || err != nil {
		t.Errorf("holder %+v, living %t, %v; want %+v", h, living, err, me)
	}
	if err := l.write(last); err != nil {
		t.Fatal(err)
	}
	if h, living, err := ReadHolder(path); h != last || !living || err != nil {
		t.Errorf("a note that never comes: holder %+v, living %t, %v", h, living, err)
	}
}

// TestAcquireBesideReader acquires a lock while a reader looks whether a process has it.
func TestAcquireBesideReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Acquire(path, Holder{PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if err = l.write(Holder{PID: ended(t)}); err != nil {
		t.Fatal(err)
	}
	l.Release()
	var late *time.Timer
	err = look(path, func(f *os.File, held bool) {
		if held {
			t.Error("the lock is held")
		}
		again, derr := unix.Dup(int(f.Fd())) // has the same lock
		if derr != nil {
			t.Fatal(derr)
		}
		late = time.AfterFunc(20*time.Millisecond, func() { _ = unix.Close(again) })
	})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Stop()
	if l, err = Acquire(path, Holder{PID: os.Getpid()}); err != nil {
		t.Fatal(err)
	}
	l.Release()
}

// ended returns the ID of a process that has ended.
func ended(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// TestKilledHolder kills a process: it counts as killed until its parent reaps it.
func TestKilledHolder(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := Holder{PID: cmd.Process.Pid}
	if h.Killed() || (Holder{}).Killed() {
		t.Error("a living process counts as killed")
	}
	if err := cmd.Process.Kill(); err != nil || !h.Killed() {
		t.Errorf("a killed process does not count as killed: %v", err)
	}
	if err := cmd.Wait(); err == nil || h.Killed() {
		t.Errorf("a process that is gone counts as killed: %v", err)
	}
}

func TestParseMounts(t *testing.T) {
	// A line that cannot be parsed, and one of an overlay with very many layers, are left out.
	table := "malformed\n99 35 0:50 / /merged rw - overlay overlay rw,lowerdir=" + strings.Repeat("/layer:", 20_000) + "\n" +
		`36 35 98:0 / /mnt1 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
40 35 0:42 / /mnt/with\040space rw,nosuid shared:2 - fuse.hmcfs hmcfs rw,user_id=1000,group_id=0
43 35 0:44 / /mnt/shared rw - fuse.hmcfs hmcfs rw,user_id=1000,group_id=0,allow_other
41 35 0:43 / /mnt\134x rw - tmpfs none rw
`
	all, err := parseMounts(strings.NewReader(table))
	if err != nil || len(all) != 4 {
		t.Fatalf("%+v, %v", all, err)
	}
	if m := all[1]; m.MountPoint != "/mnt/with space" || !m.IsHMCFS() || m.Owner() != 1000 || m.Dev != "0:42" {
		t.Errorf("%+v", m)
	}
	if private, shared := all[1], all[2]; !private.Admits(1000) || private.Admits(0) || !shared.Admits(0) {
		t.Errorf("root, or the owner, is admitted wrongly: %+v, %+v", private, shared)
	}
	if all[3].MountPoint != `/mnt\x` || all[3].Owner() != -1 {
		t.Errorf("%+v", all[3])
	}
}

func TestMountOf(t *testing.T) {
	if m, found, err := MountAt("/proc"); err != nil || !found || m.Type != "proc" {
		t.Errorf("/proc: %+v, %t, %v", m, found, err)
	}
	if at, err := MountsAt("/proc"); err != nil || len(at) == 0 || at[len(at)-1].Type != "proc" {
		t.Errorf("/proc: %+v, %v", at, err)
	}
	if at, err := MountsAt("/proc/self"); err != nil || len(at) != 0 {
		t.Errorf("/proc/self: %+v, %v", at, err)
	}
	if _, found, err := MountOf("/proc/self"); err != nil || found {
		t.Errorf("/proc/self is on hmcfs: %v", err)
	}
}

func TestCheckMountPoint(t *testing.T) {
	dir := t.TempDir()
	if err := CheckMountPoint(dir); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:         `is not empty (it has "file"); use an empty directory`,
		file:        "is not a directory; use an empty directory",
		dir + "/no": "does not exist; create it: mkdir -p",
	} {
		if err := CheckMountPoint(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestUsersNameWhoHoldsAFile(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if u, ok := userOf(os.Getpid(), "/proc/self", dir); !ok || u.Path != f.Name() || u.How != "open" {
		t.Errorf("%+v, %t", u, ok)
	}
	if u, ok := userOf(os.Getpid(), "/proc/self", dir+"x"); ok {
		t.Errorf("another directory: %+v", u)
	}
	if users := Users(dir); len(users) != 0 {
		t.Errorf("this process itself is named: %+v", users)
	}
}

func TestAbsoluteFollowsLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "link"):         dir,
		filepath.Join(dir, "link", "none"): filepath.Join(dir, "none"),
		dir + "//./":                       dir,
	} {
		if got, err := Absolute(path); err != nil || got != want {
			t.Errorf("Absolute(%s) = %s, %v", path, got, err)
		}
	}
}

func TestDetachOfWhatIsNotMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("asks the kernel as root")
	}
	if err := Detach(t.TempDir(), false); !errors.Is(err, unix.EINVAL) {
		t.Errorf("error %v", err)
	}
}

// A mount keeps its identity, and an unreadable one is reported, not replaced.
func TestNode(t *testing.T) {
	p := Paths{State: t.TempDir(), Runtime: "/r"}
	first, err := p.ReadNode()
	if err != nil || len(first.ID) != 32 || first.Epoch != 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	first.Epoch = 1 << 60
	if err = p.WriteNode(first); err != nil {
		t.Fatal(err)
	}
	if again, rerr := p.ReadNode(); rerr != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("%+v, %v; want %+v", again, rerr, first)
	}
	for _, text := range []string{"", "{", "{}"} {
		if err = os.WriteFile(p.NodeFile(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err = p.ReadNode(); err == nil || !strings.Contains(err.Error(), p.NodeFile()) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := p.NodeSocket(255); got != "/r/node-000000ff.sock" || !IsSocketPath(got) || IsSocketPath(strings.Repeat("x", 108)) {
		t.Errorf("socket %s", got)
	}
}

func TestServedDirectories(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(MakeServed(dir))
	must(MakeServed(dir))
	must(CheckServed(dir, os.Getuid()))
	config := func(at string, served bool) []byte {
		return fmt.Appendf(nil, `{"socket": "/s", "mount-point": %q, "served": %t}`, at, served)
	}
	must(Announce(dir, config(dir, true), false))
	below := filepath.Join(dir, "sim0", "none")
	if m, found, err := MountOf(below); err != nil || !found || !m.IsServed() || m.MountPoint != dir || m.Owner() != os.Getuid() {
		t.Errorf("a path below: %+v %t %v", m, found, err)
	}
	must(CheckMountPoint(dir)) // its daemon may be dead
	if err := Announce(dir, config(dir, true), false); err == nil {
		t.Error("announced twice")
	}
	for name, change := range map[string]func(){
		"others may write to it":      func() { must(os.Chmod(dir, 0o777)) },
		"others may write to control": func() { must(os.Chmod(filepath.Join(dir, ".hmcfs"), 0o777)) },
		"it is a copy":                func() { must(Announce(dir, config("/elsewhere", true), false)) },
		"it is of a mount":            func() { must(Announce(dir, config(dir, false), false)) },
		"it names no socket":          func() { must(Announce(dir, []byte("{}"), false)) },
		"it is no JSON":               func() { must(Announce(dir, []byte("x"), false)) },
		"it is removed":               func() {},
	} {
		must(os.Chmod(dir, 0o755))
		must(os.RemoveAll(filepath.Join(dir, ".hmcfs")))
		if strings.HasPrefix(name, "others") {
			must(Announce(dir, config(dir, true), true))
		}
		change()
		if m, found, err := MountOf(below); found || err != nil {
			t.Errorf("%s: %+v %v", name, m, err)
		}
		// What is not its own stays.
		CleanServed(dir)
		if _, err := os.Stat(filepath.Join(dir, ".hmcfs", "config")); err != nil && name != "it is removed" {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(os.Chmod(dir, 0o777))
	if err := CheckServed(dir, os.Getuid()); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Error(err)
	}
	if err := CheckServed(dir, os.Getuid()+1); err == nil {
		t.Error("the directory of another user is accepted")
	}
	must(os.Chmod(dir, 0o755))
	must(os.RemoveAll(filepath.Join(dir, ".hmcfs")))
	release, err := ClaimServed(dir)
	must(err)
	if _, err = ClaimServed(dir); err == nil || !strings.Contains(err.Error(), "hmcfs umount "+dir) {
		t.Errorf("claimed twice: %v", err)
	}
	release()
	again, err := ClaimServed(dir)
	must(err)
	defer again()
	must(Announce(dir, config(dir, true), false))
	CleanServed(dir)
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	must(Announce(dir, config(dir, true), false))
	must(os.WriteFile(filepath.Join(dir, ".hmcfs", "mine"), nil, 0o600))
	CleanServed(dir)
	if _, found := ServedAt(dir); !found {
		t.Error("a directory with a user's file was cleaned")
	}
}
