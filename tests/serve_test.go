package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	paths "github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// bareName is the program that runs a command without a /dev/fuse that can be opened: it replaces /dev in its mount
// namespace, gives up the privilege for that, and executes its arguments.
const bareName = "hmcfs-test-bare"

func bare() {
	if err := runBare(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runBare(stage string, command []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts become private: %w", err)
	}
	if err := unix.Mount("tmpfs", stage, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	names := []string{"null", "zero", "urandom", "shm"}
	if os.Getuid() == 0 {
		names = append(names, "fuse") // the namespace's root can't open it
	}
	for _, name := range names {
		at := filepath.Join(stage, name)
		err := os.WriteFile(at, nil, 0o666)
		if name == "shm" {
			os.Remove(at) //nolint:errcheck // the next step reports it
			err = os.Mkdir(at, 0o777)
		}
		if err == nil {
			err = unix.Mount("/dev/"+name, at, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := unix.Mount(stage, "/dev", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("replace /dev: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("give up privileges: %w", err)
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, command, os.Environ())
}

// served is the home of a user who runs hmcfs serve.
type served struct {
	t    *testing.T
	user mnt.User
	home string
	dir  string
}

func newServed(t *testing.T, u mnt.User) *served {
	t.Helper()
	home := mnt.TempDir(t)
	s := &served{t: t, user: u, home: home, dir: filepath.Join(home, "d")}
	for _, name := range []string{"bin", "run", "state", "stage"} {
		must(t, os.Mkdir(filepath.Join(home, name), 0o700))
		must(t, os.Chown(filepath.Join(home, name), u.UID, u.GID))
	}
	must(t, os.Chown(home, u.UID, u.GID))
	// A user can't reach the folder in which go test builds.
	program := filepath.Join(home, "bin", "hmcfs")
	data, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(program, data, 0o755))
	must(t, os.Chmod(filepath.Join(home, "bin"), 0o755))
	t.Cleanup(func() {
		if _, found := client.ServedAt(s.dir); !found {
			return
		}
		if out, err := s.run("umount", s.dir); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return s
}

func (s *served) env() []string {
	return append(os.Environ(), "HOME="+s.home, "XDG_RUNTIME_DIR="+filepath.Join(s.home, "run"), "XDG_STATE_HOME="+filepath.Join(s.home, "state"),
		"PATH="+filepath.Join(s.home, "bin")+":"+os.Getenv("PATH"), "PYTHONPATH="+pythonFolder(s.t), "PYTHONDONTWRITEBYTECODE=1",
		"PYTHON="+kit.Python(), "D="+s.dir, "HMCFS_MOUNT="+s.dir)
}

// run runs hmcfs as the user, in the namespaces of the test.
func (s *served) run(args ...string) (string, error) { return s.as(s.user, args...) }

func (s *served) as(u mnt.User, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(s.home, "bin", "hmcfs"), args...)
	cmd.Dir, cmd.Env = "/", s.env()
	if u.UID != s.user.UID {
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR=")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.Credential()}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// bare runs a script as alice in a user namespace without /dev/fuse.
func (s *served) bare(script string) {
	s.t.Helper()
	s.bareAs(alice, script)
}

// bareAs is bare with another number for alice in the namespace.
func (s *served) bareAs(id int, script string) {
	s.t.Helper()
	cmd := mnt.Itself(bareName, filepath.Join(s.home, "stage"), "sh", "-eux", "-c", "fails() { if \"$@\"; then exit 99; fi; }\n"+script)
	cmd.Dir, cmd.Env = "/", s.env()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: alice, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: alice, Size: 1}},
		Credential:  &syscall.Credential{Uid: uint32(id), Gid: uint32(id), NoSetGroups: true},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
	}
	// The daemon in the background keeps its own log, not this pipe.
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
}

// TestServe serves without FUSE as a user without privileges, and uses the files by the command
// line, the Go client and Python; then the daemon is killed, and another one recovers.
func TestServe(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "root")
	s := newServed(t, userAlice())
	s.bare(`
test ! -e /dev/fuse
fails hmcfs serve --lease 99999h --node-timeout 1ns $D 2>$HOME/why
grep 'lease:' $HOME/why
grep 'node-timeout:' $HOME/why
(cd $HOME; hmcfs serve --state-dir state/rel --log-file rel.log --device host,size=64MiB d; test -e state/rel/metadata; test -s rel.log; hmcfs umount d)
(ulimit -f 1000; fails hmcfs serve --device host,size=64MiB $D 2>$HOME/why)
grep 'ulimit -f unlimited' $HOME/why
fails grep -e restore -e fsck $HOME/why
(ulimit -n 60; hmcfs serve --device host,size=64MiB $D)
$PYTHON -c '
import hmcfs
held = []
try:
    for n in range(60):
        held.append(hmcfs.connect())
        held[-1].set("k", b"v")
    raise AssertionError("a daemon with 60 files has 60 sessions")
except hmcfs.Busy as e:
    assert "ulimit -n" in str(e) and len(held) > 3, e
for fs in held:
    fs.close()
assert hmcfs.connect().get("k") == b"v"
'
hmcfs umount $D
mkdir $HOME/m
fails hmcfs mount $HOME/m 2>$HOME/why
grep 'hmcfs serve' $HOME/why
hmcfs serve --metrics 127.0.0.1:0 --access-log $HOME/calls --device host,size=64MiB --device sim:0,size=64MiB $D
fails hmcfs serve $D 2>$HOME/why
grep 'already in use' $HOME/why
hmcfs status --json $D | grep '"served": true'
grep -x hmcfs /proc/$(hmcfs status --json $D | sed -n 's/^ *"pid": \([0-9]*\).*/\1/p' | head -1)/comm
head -c 5000003 /dev/urandom >$HOME/a
hmcfs cp $HOME/a hmc:sim0/a
hmcfs cp hmc:sim0/a hmc:host/b | grep d2h
hmcfs cat hmc:host/b | cmp - $HOME/a
hmcfs cp - hmc:sim0/c <$HOME/a
hmcfs cp hmc:sim0/c - | cmp - $HOME/a
hmcfs cp $D/sim0/c $HOME/c
cmp $HOME/c $HOME/a
hmcfs mkdir -p hmc:host/x/y
hmcfs mv hmc:sim0/c hmc:host/x/y/c
hmcfs cp -r hmc:host/x hmc:sim0/
hmcfs cp -r hmc:sim0/x $HOME/x
cmp $HOME/x/y/c $HOME/a
hmcfs ls -l hmc:host/x/y | grep 5000003
hmcfs stat hmc:sim0/a | grep 'device: *sim0'
hmcfs rm -r hmc:host/x hmc:sim0/x
fails hmcfs stat hmc:host/x
fails hmcfs rm hmc:host
hmcfs mset --device sim0 k1=$HOME/a k2=hmc:host/b
hmcfs exist k1 k2
hmcfs cat hmc:keys/k2 | cmp - $HOME/a
hmcfs mget k2 | cmp - $HOME/a
hmcfs mget --offset 5 --length 10 k2 | cmp - $HOME/a -n 10 -i 0:5
hmcfs mget k1=$HOME/k1 k2=$D/sim0/k2
cmp $HOME/k1 $HOME/a
hmcfs cat hmc:sim0/k2 | cmp - $HOME/a
fails hmcfs mget --timeout 10ms none 2>$HOME/why
grep 'not available in time' $HOME/why
hmcfs ls-keys k | grep 'k1  *5000003  *sim0  *live'
hmcfs publish p1=$HOME/a p2=hmc:sim0/k2
fails hmcfs publish p1=$HOME/a 2>$HOME/why
grep 'withdraw it with hmcfs rm hmc:publish/p1' $HOME/why
fails hmcfs publish --device nonsense p3=$HOME/a 2>$HOME/why
grep 'it has host, sim0' $HOME/why
hmcfs ls-keys --published | grep -c 5000003 | grep 2
hmcfs subscribe p1 | cmp - $HOME/a
fails hmcfs subscribe p2=$D/host/b 2>$HOME/why
grep 'exists already' $HOME/why
hmcfs subscribe p2=hmc:host/p2 | grep d2h
hmcfs cat hmc:host/p2 | cmp - $HOME/a
hmcfs publish --wait --timeout 1m p4=$D/host/p2 &
hmcfs subscribe --timeout 1m p4=$HOME/p4
wait $!
cmp $HOME/p4 $HOME/a
for verb in "d2h k3=hmc:host/b" "h2d k2=hmc:sim0/k3"; do
	fails hmcfs $verb 2>$HOME/why
	grep 'hmcfs m[a-z]* ' $HOME/why
done
test "$(hmcfs ls hmc:host hmc:sim0 | grep -c publish)" = 0
hmcfs watch --count 1 --event removed k1 >$HOME/seen 2>$HOME/begun &
until grep watching $HOME/begun; do sleep 0.01; done
hmcfs del k1
wait $!
grep k1 $HOME/seen
fails hmcfs exist k1
grep '"verb":"delete","keys":1,' $HOME/calls
$PYTHON -c '
import json, os, subprocess, urllib.request
status = subprocess.run(["hmcfs", "status", "--json", os.environ["D"]], stdout=subprocess.PIPE, check=True).stdout
text = urllib.request.urlopen("http://" + json.loads(status)["metrics"] + "/metrics").read().decode()
for name in ("hmcfs_session_call_seconds_count{verb=\"delete\"}", "hmcfs_transfer_bytes_total{", "hmcfs_device_memory_held_bytes{"):
    assert any(line.startswith(name) and float(line.split()[-1]) > 0 for line in text.splitlines()), name
'
(unset HMCFS_MOUNT; cd $D/; hmcfs ls hmc:host) | grep b
$PYTHON -c '
import hmcfs, os
fs = hmcfs.connect()
assert fs.path == os.environ["D"] == hmcfs.connect(fs.path + "/sim0").path
fs.set("py", b"some bytes")
assert fs.get("py") == b"some bytes" and fs.exists("py")
fs.delete("py")
assert not fs.exists("py")
want = open(os.environ["HOME"] + "/a", "rb").read()
assert fs.read("sim0/a") == want and fs.stat("host/b").st_size == len(want)
with fs.open(fs.path + "/sim0/a") as f:
    assert f.device == "sim0" and f.memory() == want
fs.write("host/py", want[::-1])
fs.copy("host/py", "sim0")
assert fs.read("sim0/py") == want[::-1]
try:
    fs.open("sim0/none")
    raise AssertionError("a file that does not exist was opened")
except FileNotFoundError as e:
    assert isinstance(e, hmcfs.NotFound) and e.filename == "sim0/none"
for name, value, error, says in (
    ("user.hmc.key", "a/b", hmcfs.Invalid, "write : instead of /"), ("user.hmc.shape", "1,x", hmcfs.Invalid, "is not a number"),
    ("user.hmc.ttl", "soon", hmcfs.Invalid, "whole seconds"), ("user.hmc.state", "live", hmcfs.Unsupported, "can" + chr(39) + "t be set"),
    ("mine", "1", hmcfs.Unsupported, "begins with user."),
):
    try:
        fs.set_attribute("host/py", name, value)
        raise AssertionError(name + " was set")
    except error as e:
        assert e.filename == "host/py" and e.errno and name in str(e) and says in str(e) and "metadata:" not in str(e), e
fs.remove("sim0/py")
fs.remove("host/py")
import importlib.util
if importlib.util.find_spec("numpy"):
    import numpy as np
    x = np.frombuffer(want[:3000000], "f4").reshape(750, 1000)
    name = fs.path + "/host/m.safetensors"
    for take in (x, x[::-1].copy()):
        hmcfs.save_file({"x": take, "b": np.arange(6)}, name)
        assert hmcfs.load_file(name, framework="numpy")["x"].tobytes() == take.tobytes()
    hmcfs.save_file(x, fs.path + "/sim0/x.npy")
    assert hmcfs.load_file(fs.path + "/sim0/x.npy", framework="numpy")["x"].tobytes() == x.tobytes()
    for bad, error in (("/none/x.npy", hmcfs.NotFound), ("/keys/x.npy", hmcfs.HmcfsError)):
        try:
            hmcfs.save_file(x, fs.path + bad)
            raise AssertionError("a file was saved in a directory that does not exist, or that has keys")
        except error as e:
            assert isinstance(e, OSError) and e.filename == fs.path + bad, e
    live = fs.empty(5000)
    live[:] = 7
    with fs.bind("host/live", live):
        live[5] = 8
        assert fs.read("host/live") == live.tobytes()
    assert [n for n in fs.listdir("host") if n[0] != "."] == ["b", "m.safetensors"], fs.listdir("host")
    fs.remove("host/m.safetensors")
    fs.remove("sim0/x.npy")
'
`)
	want, err := os.ReadFile(filepath.Join(s.home, "a"))
	must(t, err)
	mnt.AsUser(t, userAlice(), func() { s.useGo(want) })
	other := mnt.User{UID: bob, GID: bob}
	must(t, os.Chmod(s.home, 0o711))
	for _, verb := range []string{"status", "page", "top --once", "df", "nodes", "fsck", "umount", "ls --mount", "exist k --mount"} {
		out, err := s.as(other, append(strings.Fields(verb), s.dir)...)
		if err == nil || !strings.Contains(out, "only root and the user who mounted it may do this") {
			t.Errorf("another user, %s: %v %s", verb, err, out)
		}
	}
	if out, err := s.as(other, "serve", s.dir); err == nil || !strings.Contains(out, fmt.Sprintf("is served by a daemon of user %d", alice)) {
		t.Errorf("another user serves the directory: %v %s", err, out)
	}
	s.kill()
	for _, verb := range []string{"ls", "exist k"} {
		out, err := s.run(append(strings.Fields(verb), "--mount", s.dir)...)
		if err == nil || !strings.Contains(out, "is dead; start it again") {
			t.Errorf("a dead daemon, %s: %v %s", verb, err, out)
		}
	}
	s.bare(`
hmcfs serve --device host,size=64MiB --device sim:0,size=64MiB $D
hmcfs cat hmc:keys/k2 | cmp - $HOME/a
hmcfs stat hmc:sim0/a | grep 'state: *lost'
hmcfs umount --keep $D
test ! -e $D/.hmcfs
hmcfs serve --device host,size=64MiB --device sim:0,size=64MiB $D
hmcfs cat hmc:host/b | cmp - $HOME/a
hmcfs umount $D
fails hmcfs status $D
`)
	// There /run/hmcfs is not that root's, and /dev/fuse neither.
	s.bareAs(0, `
fails hmcfs mount --state-dir $HOME/state/m --runtime-dir $HOME/run/m $HOME/m 2>$HOME/why
grep -e "/dev/fuse can't be opened, not even by root.*permi.*hmcfs serve" $HOME/why
fails hmcfs serve --device host,size=64MiB $D 2>$HOME/why
grep -e 'runtime directory: .*--runtime-dir' $HOME/why
hmcfs serve --state-dir $HOME/state/0 --runtime-dir $HOME/run/0 --device host,size=64MiB $D
chmod 777 $D
for verb in "ls hmc:host" "status $D" "umount $D"; do
	fails hmcfs $verb 2>$HOME/why
	grep 'chmod go-w' $HOME/why
done
mkdir $HOME/open
chmod 777 $HOME/open
fails hmcfs serve --state-dir $HOME/state/1 --runtime-dir $HOME/run/1 --device host,size=64MiB $HOME/open 2>$HOME/why
grep 'chmod go-w' $HOME/why
$PYTHON -c '
import hmcfs
try:
    raise AssertionError(hmcfs.connect().path)
except hmcfs.NotMounted as e:
    assert "chmod go-w" in str(e), e
'
chmod 755 $D
hmcfs cp $HOME/a hmc:host/a
hmcfs cat hmc:host/a | cmp - $HOME/a
hmcfs umount $D
test ! -e $D/.hmcfs
`)
}

// useGo uses the files by the Go client, which finds the daemon by the directory.
func (s *served) useGo(want []byte) {
	t := s.t
	c, f, err := client.Find(s.dir)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = f.Close() }() // it only names the directory
	session, err := client.OpenSession(t.Context(), c.Socket())
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = session.Close() }() // nothing is left to write
	got, err := []byte(nil), session.Set(t.Context(), "go", want, hetero.SetOptions{})
	if err == nil {
		got, err = session.Get(t.Context(), "go")
	}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("Set and Get: %v; byte %d differs", err, kit.FirstDiff(got, want))
	}
	files := session.Files()
	got, err = fs.ReadFile(files, "host/b")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("ReadFile: %v; byte %d differs", err, kit.FirstDiff(got, want))
	}
	w, err := files.Create("sim0/go", 0o600)
	if err == nil {
		_, err = io.Copy(w, bytes.NewReader(want))
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		_, err = files.Copy(t.Context(), "sim0/go", "host/go")
	}
	if err == nil {
		got, err = files.ReadFile("host/go")
	}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("write, copy and read: %v; byte %d differs", err, kit.FirstDiff(got, want))
	}
	err = files.SetAttribute("host/go", "user.hmc.shape", []byte("1,x"))
	if !errors.Is(err, unix.EINVAL) || !strings.Contains(fmt.Sprint(err), `user.hmc.shape = "1,x": `) {
		t.Errorf("an attribute that is refused: %v", err)
	}
	if err = files.MkdirAll("sim0/tree/in", 0o700); err == nil {
		err = files.WriteFile("sim0/tree/in/f", want[:100], 0o600)
	}
	sub, serr := fs.Sub(files, "sim0/tree")
	if err = errors.Join(err, serr); err == nil {
		err = fstest.TestFS(sub, "in/f") // it reads byte by byte
	}
	if err != nil {
		t.Error(err)
	}
}

// kill kills the daemon, and returns when it has ended.
func (s *served) kill() {
	s.t.Helper()
	out, err := s.run("status", "--json", s.dir)
	must(s.t, err)
	var st adminapi.Status
	must(s.t, json.Unmarshal([]byte(out), &st))
	must(s.t, unix.Kill(st.PID, unix.SIGKILL))
	must(s.t, paths.AwaitEnd(s.t.Context(), st.PID, paths.Paths{Runtime: st.RuntimeDir}.Lock(), time.Minute))
}

// TestServeBesideAMount serves beside a mount: each is found by its directory, hmc: is not
// ambiguous, and files go from one to the other.
func TestServeBesideAMount(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	s := newServed(t, mnt.User{})
	must(t, os.WriteFile(m.Path("host", "a"), kit.Bytes(3, 0, 300_001), 0o644))
	run := func(args ...string) {
		out, err := s.run(args...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	run("serve", "--device", "host,size=64MiB", "--device", "sim:0,size=64MiB", "--state-dir", filepath.Join(s.home, "st"), "--runtime-dir", filepath.Join(s.home, "rt"), s.dir)
	run("cp", m.Path("host", "a"), filepath.Join(s.dir, "sim0", "a"))
	run("cp", "--mount", m.Dir, filepath.Join(s.dir, "sim0", "a"), "hmc:sim1/b")
	run("mv", "--mount", m.Dir, "hmc:sim1/b", "hmc:host/c")
	got, err := os.ReadFile(m.Path("host", "c"))
	must(t, err)
	if at := kit.DiffAt(got, 3, 0); at >= 0 || len(got) != 300_001 {
		t.Errorf("byte %d of %d differs", at, len(got))
	}
	if out, err := s.run("serve", m.Dir); err == nil || !strings.Contains(out, "already") {
		t.Errorf("serve on a mount: %v %s", err, out)
	}
	if out, err := s.run("mount", s.dir); err == nil || !strings.Contains(out, "already in use") {
		t.Errorf("mount on a served directory: %v %s", err, out)
	}
	run("umount", s.dir)
}

// TestServeCluster has two daemons without mounts show each other's devices to sessions.
func TestServeCluster(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "root")
	s := newServed(t, mnt.User{})
	secret := filepath.Join(s.home, "secret")
	must(t, os.WriteFile(secret, []byte(strings.Repeat("cluster ", 4)), 0o600))
	dir := func(node string) string { return filepath.Join(s.home, "node-"+node) }
	at := func(node string) string { return "unix:" + filepath.Join(s.home, node+".sock") }
	files := map[string]*client.Files{}
	for node, peer := range map[string]string{"a": "b", "b": "a"} {
		out, err := s.run("serve", "--node", node, "--peer", peer+"="+at(peer), "--listen", at(node), "--squash", "none",
			"--secret-file", secret, "--device", "host,size=64MiB", "--device", "sim:0,size=64MiB", dir(node))
		if err != nil {
			t.Fatalf("node %s: %v\n%s", node, err, out)
		}
		t.Cleanup(func() {
			if said, failure := s.run("umount", dir(node)); failure != nil && !strings.Contains(said, "is not mounted") {
				t.Errorf("umount: %v\n%s", failure, said)
			}
		})
		served, _ := client.ServedAt(dir(node))
		session, err := client.OpenSession(t.Context(), served.Socket)
		must(t, err)
		t.Cleanup(func() { _ = session.Close() }) // the daemon may have ended it
		files[node] = session.Files()
	}
	a, b := files["a"], files["b"]
	const size = 700_001
	same := func(f *client.Files, name string, seed uint64) {
		t.Helper()
		if got, err := f.ReadFile(name); err != nil || len(got) != size || kit.DiffAt(got, seed, 0) >= 0 {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	must(t, b.WriteFile("sim0/x", kit.Bytes(6, 0, size), 0o600))
	same(a, "nodes/b/sim0/x", 6)
	must(t, a.WriteFile("nodes/b/host/y", kit.Bytes(7, 0, size), 0o600))
	same(b, "host/y", 7)
	if _, err := a.Copy(t.Context(), "nodes/b/host/y", "sim0/z"); err != nil {
		t.Error(err)
	}
	same(a, "sim0/z", 7)
	same(b, "nodes/a/sim0/z", 7)
	must(t, b.SetAttribute("host/y", "user.hmc.key", []byte("k")))
	same(a, "keys/k", 7)
	said := &client.Error{}
	if _, err := a.Memory(t.Context(), "nodes/b/host/y", ""); !errors.As(err, &said) || said.Code != adminapi.CodeUnsupported {
		t.Errorf("the memory of a file of another node: %v", err)
	}
	if out, err := s.run("umount", dir("b")); err != nil {
		t.Errorf("umount: %v\n%s", err, out)
	}
	if _, err := a.ReadFile("nodes/b/sim0/x"); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("a node that has ended: %v", err)
	}
}
