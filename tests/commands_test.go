package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// commands runs hmcfs as a user does, in a directory and with variables.
type commands struct {
	t    *testing.T
	m    *mnt.M
	dir  string
	vars []string
}

// said has the output of a command, and its exit code.
type said struct {
	code        int
	out, errors string
}

func (c commands) run(args ...string) said { return c.with(nil, args...) }

func (c commands) with(stdin []byte, args ...string) said {
	c.t.Helper()
	cmd := c.m.Command(args...)
	cmd.Path = must2(c.t)(os.Readlink("/proc/self/exe"))
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.dir, append(os.Environ(), c.vars...), bytes.NewReader(stdin), &out, &errs
	err := cmd.Run()
	exit, is := errors.AsType[*exec.ExitError](err)
	if err != nil && !is {
		c.t.Fatal(err)
	}
	s := said{out: out.String(), errors: errs.String()}
	if is {
		s.code = exit.ExitCode()
	}
	return s
}

// must2 returns a function that returns its first argument, or ends the test.
func must2(t *testing.T) func(string, error) string {
	t.Helper()
	return func(text string, err error) string {
		t.Helper()
		must(t, err)
		return text
	}
}

// wants checks the exit code, and that both outputs contain texts.
func (s said) wants(t *testing.T, code int, out, errs string) {
	t.Helper()
	if s.code != code || !strings.Contains(s.out, out) || !strings.Contains(s.errors, errs) {
		t.Errorf("exit code %d, want %d; output %q, want %q; errors %q, want %q", s.code, code, s.out, out, s.errors, errs)
	}
}

// TestCommands tries what a user types, on two mounts at a time.
func TestCommands(t *testing.T) {
	kit.Check(t)
	devices := []string{"host,size=64MiB", "sim0,size=64MiB"} // a name is as good as sim:0
	m := mnt.Mount(t, mnt.Options{Devices: devices})
	other := mnt.Mount(t, mnt.Options{Devices: devices})
	c := commands{t: t, m: m, dir: "/"}
	must(t, os.WriteFile(m.Path("sim0", "w"), kit.Bytes(1, 0, 5000), 0o640))
	must(t, os.Mkdir(m.Path("sim0", "d"), 0o755))
	for name, value := range map[string]string{"user.hmc.dtype": "float32", "user.hmc.shape": "10,125", "user.hmc.key": "k1"} {
		must(t, unix.Setxattr(m.Path("sim0", "w"), name, []byte(value), 0))
	}
	t.Run("mount", func(t *testing.T) { findsTheMount(t, c, m, other) })
	t.Run("list", func(t *testing.T) { listsFiles(t, c, m) })
	t.Run("complete", func(t *testing.T) { completes(t, c, m, other) })
	t.Run("copy", func(t *testing.T) { copiesAsCp(t, c, m) })
	t.Run("refused", func(t *testing.T) { refusesReadably(t, c, m) })
}

func findsTheMount(t *testing.T, c commands, m, other *mnt.M) {
	several := c.run("ls")
	several.wants(t, 2, "", "there are several hmcfs mounts: ")
	for _, at := range []*mnt.M{m, other} {
		if !strings.Contains(several.errors, at.Dir) {
			t.Errorf("%q does not name %s", several.errors, at.Dir)
		}
		for _, verb := range []string{"mounts", "status"} {
			c.run(verb).wants(t, 0, at.Dir, "")
		}
	}
	var rows []struct {
		MountPoint string   `json:"mount_point"`
		State      string   `json:"state"`
		Devices    []string `json:"devices"`
	}
	must(t, json.Unmarshal([]byte(c.run("mounts", "--json").out), &rows))
	found := 0
	for _, r := range rows {
		if r.MountPoint == m.Dir || r.MountPoint == other.Dir {
			found++
			if r.State != "ok" || !slices.Equal(r.Devices, []string{"host", "sim0"}) {
				t.Errorf("%+v", r)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d of 2 mounts: %+v", found, rows)
	}
	// Each way goes before the next one: the other mount is the one that must not be found.
	inside := commands{t: t, m: m, dir: other.Path("host"), vars: []string{"HMCFS_MOUNT=" + other.Dir}}
	for _, args := range [][]string{{"status", m.Dir}, {"df", m.Dir}, {"ls", "--mount", m.Path("sim0")}, {"ls", m.Path("sim0")}} {
		inside.run(args...).wants(t, 0, m.Dir, "")
	}
	inside.run("ls").wants(t, 0, other.Dir, "")
	inside.vars = []string{"HMCFS_MOUNT=" + m.Dir}
	inside.run("ls").wants(t, 0, m.Dir, "")
	inside.run("exist", "k1").wants(t, 0, "k1", "")
	inside.vars = nil
	inside.run("ls").wants(t, 0, other.Dir, "")
	inside.run("exist", "k1").wants(t, 1, "", "")
	inside.run("umount").wants(t, 2, "", "MOUNTPOINT")
	inside.vars = []string{"HMCFS_MOUNT=/proc"}
	inside.run("df").wants(t, 3, "", "HMCFS_MOUNT: /proc is not on an hmcfs mount")
}

func listsFiles(t *testing.T, c commands, m *mnt.M) {
	c.dir = m.Dir
	c.run("ls").wants(t, 0, m.Path("sim0"), "")
	row := []string{"sim0", "5000", "float32", "10,125", "live", "k1", "h2d"}
	for _, path := range []string{"sim0", "hmc:sim0", "sim0/w", "keys", m.Path("sim0")} {
		s := c.run("ls", path)
		s.wants(t, 0, "LAST TRANSFER", "")
		line := func(text string) bool { return slices.Equal(append(strings.Fields(text), "")[:len(row)], row) }
		if !slices.ContainsFunc(strings.Split(s.out, "\n"), func(text string) bool { return len(strings.Fields(text)) == len(row)+1 && line(text) }) {
			t.Errorf("ls %s: %s", path, s.out)
		}
	}
	c.run("ls", "-1", "hmc:sim0").wants(t, 0, "hmc:sim0/d\nhmc:sim0/w\n", "")
	c.run("ls", "-l", "sim0/w").wants(t, 0, "-rw-r-----", "")
	c.run("ls", "none", "sim0").wants(t, 4, "sim0/w", "none")
	var used []struct {
		Device         string `json:"device"`
		Used           int64  `json:"used"`
		Keys, Objects  int
		KeyBytes       int64 `json:"key_bytes"`
		Size, Free     int64
		notInTheAnswer int
	}
	must(t, json.Unmarshal([]byte(c.run("df", "--json").out), &used))
	if len(used) != 2 || used[1].Device != "sim0" || used[1].Keys != 1 || used[1].KeyBytes != 5000 || used[1].Objects != 1 || used[1].Used == 0 || used[1].Size != 64<<20 {
		t.Errorf("%+v", used)
	}
	c.run("df").wants(t, 0, "BY KEYS", "")
}

// completes asks as a shell does.
func completes(t *testing.T, c commands, m, other *mnt.M) {
	c.vars = []string{"HMCFS_MOUNT=" + m.Dir}
	for _, x := range []struct {
		args  []string
		wants []string
		not   string
	}{
		{[]string{"status", ""}, []string{m.Dir, other.Dir}, "k1"},
		{[]string{"umount", m.Dir[:len(m.Dir)-1]}, []string{m.Dir}, "k1"},
		{[]string{"ls", "--mount", ""}, []string{m.Dir}, "k1"},
		{[]string{"exist", ""}, []string{"k1"}, "w"},
		{[]string{"del", "k1", ""}, nil, "k1"},
		{[]string{"mget", "k"}, []string{"k1"}, "w"},
		{[]string{"mget", "--mount", other.Dir, "k"}, nil, "k1"},
		{[]string{"mget", "k1=" + m.Path("s")}, []string{"k1=" + m.Path("sim0") + "/"}, "host"},
		{[]string{"cat", "hmc:"}, []string{"hmc:sim0/", "hmc:host/", "hmc:keys/"}, "k1"},
		{[]string{"cat", "hmc:sim0/"}, []string{"hmc:sim0/w", "hmc:sim0/d/"}, "k1"},
		{[]string{"cp", "hmc:keys/"}, []string{"hmc:keys/k1"}, "w"},
		{[]string{"mset", "--device", ""}, []string{"host", "sim0"}, "k1"},
		{[]string{"mount", "--device", "ho"}, []string{"host"}, "sim0"},
	} {
		s := c.run(append([]string{"__complete"}, x.args...)...)
		var words []string
		for line := range strings.Lines(s.out) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			words = append(words, word)
		}
		for _, want := range x.wants {
			if !slices.Contains(words, want) {
				t.Errorf("%q: %q has no %q", x.args, words, want)
			}
		}
		if s.code != 0 || slices.Contains(words, x.not) {
			t.Errorf("%q: exit code %d, %q", x.args, s.code, words)
		}
	}
}

func copiesAsCp(t *testing.T, c commands, m *mnt.M) {
	c.dir = t.TempDir()
	local := filepath.Join(c.dir, "f")
	must(t, os.WriteFile(local, kit.Bytes(7, 0, 300_001), 0o600))
	for _, device := range []string{"host", "sim0"} {
		dst := m.Path(device)
		c.run("cp", "none", "f", dst).wants(t, 4, "", "none: no such file")
		wantContent(t, filepath.Join(dst, "f"), 7, 300_001)
		if s := c.run("cp", "-q", "f", dst); s != (said{}) {
			t.Errorf("-q: %+v", s)
		}
		c.run("cp", "-v", "f", filepath.Join(dst, "g")).wants(t, 0, "f -> "+filepath.Join(dst, "g")+": 300001 bytes", "")
		c.with(kit.Bytes(8, 0, 70_001), "cp", "-", filepath.Join(dst, "s")).wants(t, 0, "", "")
		wantContent(t, filepath.Join(dst, "s"), 8, 70_001)
		if s := c.run("cp", filepath.Join(dst, "s"), "-"); s.code != 0 || kit.DiffAt([]byte(s.out), 8, 0) >= 0 || len(s.out) != 70_001 {
			t.Errorf("%s to standard output: exit code %d, %d bytes, %s", device, s.code, len(s.out), s.errors)
		}
		must(t, unix.UtimesNano(local, []unix.Timespec{{Sec: 5}, {Sec: 1_500_000_000, Nsec: 7}}))
		c.run("cp", "-p", "f", filepath.Join(dst, "p")).wants(t, 0, "", "")
		if st := lstat(t, filepath.Join(dst, "p")); st.Mtim.Sec != 1_500_000_000 || st.Mtim.Nsec != 7 || st.Mode&0o7777 != 0o600 {
			t.Errorf("-p: %+v", st)
		}
		manyFiles(t, c, dst)
	}
	same := filepath.Join(c.dir, "sub")
	must(t, os.Mkdir(same, 0o700))
	must(t, os.WriteFile(filepath.Join(same, "f"), kit.Bytes(9, 0, 300_001), 0o600))
	c.run("cp", "f", "sub/f", m.Path("host", "..", "sim0", "d")).wants(t, 4, "", "sub/f")
	wantContent(t, m.Path("sim0", "d", "f"), 7, 300_001)
}

// manyFiles copies a tree to a device and back.
func manyFiles(t *testing.T, c commands, dst string) {
	t.Helper()
	src := filepath.Join(c.dir, "tree")
	const files = 70
	for i := range files {
		dir := filepath.Join(src, string(rune('a'+i%7)))
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, string(rune('A'+i/7))), kit.Bytes(uint64(i), 0, 10_000+i), 0o644))
	}
	c.run("cp", "-r", "tree", dst).wants(t, 0, "70 files: ", "")
	back := filepath.Join(c.dir, "back"+filepath.Base(dst))
	c.run("cp", "-a", filepath.Join(dst, "tree"), back).wants(t, 0, "", "")
	for i := range files {
		for _, at := range []string{filepath.Join(dst, "tree"), back} {
			wantContent(t, filepath.Join(at, string(rune('a'+i%7)), string(rune('A'+i/7))), uint64(i), 10_000+i)
		}
	}
	must(t, os.RemoveAll(filepath.Join(dst, "tree")))
}

// refusesReadably checks messages for what they say, and for what only programs need.
func refusesReadably(t *testing.T, c commands, m *mnt.M) {
	c.dir = m.Dir
	nested := mnt.Prepare(t, mnt.Options{})
	inner := m.Path("host", "inner")
	must(t, os.Mkdir(inner, 0o700))
	flags := []string{"--state-dir", nested.StateDir, "--runtime-dir", nested.RuntimeDir, "--device", "host,size=8MiB"}
	c.run(append(append([]string{"mount"}, flags...), inner)...).wants(t, 0, "", "")
	second := t.TempDir()
	s := c.run(append(append([]string{"mount"}, flags...), second)...)
	s.wants(t, 1, "", "runtime directory "+nested.RuntimeDir+" is in use by process")
	s.wants(t, 1, "", "hmcfs umount "+inner)
	commands{t: t, m: m, dir: "/"}.run("umount", m.Dir).wants(t, 1, "", "unmount them first: "+inner)
	c.run("umount", inner).wants(t, 0, "", "")
	c.run("mset", "a/b=sim0/w").wants(t, 2, "", "a key has no directories")
	s = c.run("mset", "k2=sim0/w")
	s.wants(t, 1, "", `sim0/w already has the key "k1", and a file has only one; remove that key: hmcfs del`)
	must(t, os.WriteFile(m.Path("sim0", "a"), kit.Bytes(1, 0, 20<<20), 0o600))
	must(t, os.WriteFile(m.Path("sim0", "b"), kit.Bytes(2, 0, 20<<20), 0o600))
	s = c.run("allreduce", "--dtype", "f32", "sim0/a", "sim0/b")
	s.wants(t, 1, "", "out of memory")
	if strings.Contains(s.errors, "object ") || !strings.Contains(s.errors, "sim0/") {
		t.Errorf("a number for a name: %s", s.errors)
	}
	big, err := os.OpenFile(m.Path("sim0", "big"), os.O_WRONLY|os.O_CREATE, 0o600)
	must(t, err)
	for err == nil {
		_, err = big.Write(kit.Bytes(3, 0, 1<<20))
	}
	must(t, big.Close())
	if log := m.Log(); !errors.Is(err, unix.ENOSPC) || !strings.Contains(log, "write sim0/big: sim0: out of memory") {
		t.Errorf("%v; the log: %s", err, log)
	}
	s = c.run("export", ".hmcfs/config", "--json", "--pid", "1")
	s.wants(t, 1, "", "it has no memory of its own; name a file in a device's directory")
	if strings.Contains(s.errors, "metadata:") || strings.Contains(s.errors, "inode") {
		t.Errorf("what only programs need: %s", s.errors)
	}
}
