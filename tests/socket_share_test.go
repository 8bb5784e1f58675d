package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// oneMemfd describes a memfd that is the first of the descriptors sent along.
func oneMemfd(family string, pid, size int) share.Memory {
	first := 0
	return share.Memory{
		Family: devices.Family(family), PID: pid, Size: devices.Size(size),
		Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &first, Size: devices.Size(size)}},
	}
}

// The slice of a client is the file: changes are visible in both directions without a copy.
func TestClientMapsAFile(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 3<<20 + 4097
		f := p.path("f")
		create(t, f, 1, n)
		m, err := client.Map(t.Context(), f)
		must(t, err)
		if len(m.Bytes) != n || kit.DiffAt(m.Bytes, 1, 0) >= 0 {
			t.Errorf("%d bytes, which differ at %d", len(m.Bytes), kit.DiffAt(m.Bytes, 1, 0))
		}
		kit.FillAt(m.Bytes, 2, 0)
		wantContent(t, f, 2, n)
		h := open(t, f, os.O_RDWR)
		_, err = h.WriteAt(kit.Bytes(3, 5, n-9), 5)
		must(t, err)
		if i := kit.DiffAt(m.Bytes[5:n-4], 3, 5); i >= 0 {
			t.Errorf("byte %d is not what was written to the file", i)
		}
		must(t, h.Close())
		wantErrno(t, unix.Truncate(f, n-1), unix.EBUSY)
		must(t, m.Close())
		eventuallyCut(t, f)
	})
}

// eventuallyCut truncates a file whose last export has just ended.
func eventuallyCut(t *testing.T, f string) {
	t.Helper()
	kit.Eventually(t, mntPatience, func() error { return unix.Truncate(f, 1) })
}

// Each export of a file ends on its own, in any order; ending all of them does not affect a
// process that has the file mapped.
func TestKindsOfExportsEndAlone(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	f := m.Path("sim0", "f")
	create(t, f, 1, 1<<20)
	o := newMemOwner(t, 0, 1, 4096)
	mapped, err := client.Map(t.Context(), f)
	must(t, err)
	_, err = m.Run("export", "--pid", fmt.Sprint(o.pid()), f)
	must(t, err)
	must(t, mapped.Close())
	_, err = m.Run("export", f, "--", "true") // a short export that has ended since
	must(t, err)
	wantErrno(t, unix.Truncate(f, 1), unix.EBUSY)
	o.kill()
	eventuallyCut(t, f)

	create(t, f, 2, 1<<20)
	mapped, err = client.Map(t.Context(), f)
	must(t, err)
	_, err = m.Run("export", "--end", f)
	must(t, err)
	must(t, unix.Truncate(f, 1))
	create(t, f, 3, 1<<20)
	again, err := client.Map(t.Context(), f)
	must(t, err)
	must(t, mapped.Close()) // which does not end the other export
	for range 20 {
		wantErrno(t, unix.Truncate(f, 1), unix.EBUSY)
	}
	if i := kit.DiffAt(again.Bytes, 3, 0); i >= 0 {
		t.Errorf("byte %d is wrong", i)
	}
	must(t, again.Close())
	eventuallyCut(t, f)
}

// An export does not prevent an unmount, and a process that has the file mapped keeps it.
func TestUnmountUnderAnExport(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		m := mnt.Mount(t, mnt.Options{})
		f := m.Path(p.name, "f")
		create(t, f, 1, 1<<20)
		mapped, err := client.Map(t.Context(), f)
		must(t, err)
		m.Umount()
		if i := kit.DiffAt(mapped.Bytes, 1, 0); i >= 0 {
			t.Errorf("byte %d has changed by the unmount", i)
		}
		kit.FillAt(mapped.Bytes, 2, 0)
		must(t, mapped.Close())
	})
}

// An export lasts until the last client has closed it.
func TestClientsShareOneExport(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		f := p.path("f")
		create(t, f, 1, 1<<20)
		a, err := client.Map(t.Context(), f)
		must(t, err)
		b, err := client.Map(t.Context(), f)
		must(t, err)
		a.Bytes[77]++
		if b.Bytes[77] != a.Bytes[77] || b.Bytes[78] != a.Bytes[78] {
			t.Error("the two have other memory")
		}
		must(t, a.Close())
		// The daemon may take time to notice the close: the export must remain.
		for range 20 {
			wantErrno(t, unix.Truncate(f, 1), unix.EBUSY)
		}
		must(t, b.Close())
		eventuallyCut(t, f)
	})
}

// Memory of this process becomes a file, until the process ends.
func TestClientBindsItsMemory(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 1 << 20
		o := newMemOwner(t, 0, 1, n)
		f := p.path("f")
		must(t, os.WriteFile(f, nil, 0o600))
		m := oneMemfd(familyOf(p.name), o.pid(), n)
		m.Dtype, m.Shape = "float32", "512,512"
		bound, err := client.Bind(t.Context(), f, m, o.file)
		must(t, err)
		if bound.State != "bound" || bound.Size != n || string(bound.Device) != p.name {
			t.Errorf("%+v", bound)
		}
		wantXattr(t, f, "user.hmc.shape", "512,512")
		// The size changes at once, even if the kernel has cached another.
		wantContent(t, f, 1, n)
		kit.FillAt(o.bytes, 2, 0)
		wantContent(t, f, 2, n)
		if _, err := client.Bind(t.Context(), f, m, o.file); !client.IsBusy(err) {
			t.Errorf("bound twice: %v", err)
		}
		o.kill()
		kit.Eventually(t, mntPatience, func() error {
			if _, rerr := os.ReadFile(f); !errors.Is(rerr, unix.EIO) {
				return fmt.Errorf("the owner has ended, and reading gives %w", rerr)
			}
			return nil
		})
	})
}

// The kernel identifies other users, whose rights depend on the file's mode.
func TestOthersShareOverTheSocket(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{AllowOther: true})
	dir := m.Path("sim0")
	for name, mode := range map[string]os.FileMode{"closed": 0o600, "readable": 0o644, "shared": 0o666, "team": 0o660} {
		create(t, filepath.Join(dir, name), 1, 8192)
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	const team = 61000
	must(t, os.Chown(filepath.Join(dir, "team"), 0, team))
	must(t, os.Mkdir(filepath.Join(dir, "private"), 0o700))
	create(t, filepath.Join(dir, "private", "f"), 1, 100)
	must(t, os.Chmod(filepath.Join(dir, "private", "f"), 0o666))
	try := func(u mnt.User, name string) (err error) {
		mnt.AsUser(t, u, func() {
			var mapped *client.Mapping
			if mapped, err = client.Map(t.Context(), filepath.Join(dir, name)); err != nil {
				return
			}
			if i := kit.DiffAt(mapped.Bytes, 1, 0); i >= 0 {
				t.Errorf("%s: byte %d is wrong", name, i)
			}
			err = mapped.Close()
		})
		return err
	}
	for _, name := range []string{"closed", "readable", "team"} {
		if err := try(userAlice(), name); !client.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := try(userAlice(), "private/f"); !errors.Is(err, os.ErrPermission) {
		t.Errorf("behind a closed directory: %v", err)
	}
	must(t, try(userAlice(), "shared"))
	must(t, try(mnt.User{UID: alice, GID: alice, Groups: []int{team}}, "team"))

	// Without a descriptor, the file of another directory entry can't be named.
	mnt.AsUser(t, userAlice(), func() {
		answer, err := askRaw(filepath.Join(m.RuntimeDir, "admin.sock"), "POST", adminapi.PathExport)
		if err != nil || !strings.HasPrefix(answer, "HTTP/1.1 403 ") {
			t.Errorf("by name: %v\n%s", err, answer)
		}
	})
}

// Memory is bound by a process that has its descriptor, to a file of the process's user.
func TestOthersBindOverTheSocket(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{AllowOther: true})
	mine, roots := m.Path("sim0", "mine"), m.Path("sim0", "roots")
	must(t, os.WriteFile(roots, nil, 0o644))
	o := newMemOwner(t, alice, 1, 4096)
	mnt.AsUser(t, userAlice(), func() {
		if err := os.WriteFile(mine, nil, 0o600); err != nil {
			t.Error(err)
		}
		if _, err := client.Bind(t.Context(), roots, oneMemfd("sim", o.pid(), 4096), o.file); !client.IsForbidden(err) {
			t.Errorf("into a file of root's: %v", err)
		}
		if _, err := client.Bind(t.Context(), mine, oneMemfd("sim", 1, 4096), o.file); !client.IsForbidden(err) {
			t.Errorf("as memory of process 1: %v", err)
		}
		if _, err := client.Bind(t.Context(), mine, oneMemfd("sim", o.pid(), 4096), o.file); err != nil {
			t.Error(err)
		}
	})
	wantContent(t, mine, 1, 4096)
}

// The socket of a mount without --allow-other is private.
func TestSocketIsPrivateWithoutAllowOther(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	mnt.AsUser(t, userAlice(), func() {
		if _, err := askRaw(filepath.Join(m.RuntimeDir, "admin.sock"), "POST", adminapi.PathExport); !os.IsPermission(err) {
			t.Errorf("another user reaches the socket: %v", err)
		}
	})
}

// TestCommandHoldsAnExport runs a command with exported memory, and kills the process that
// holds the export.
func TestCommandHoldsAnExport(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	f := m.Path("sim0", "f")
	create(t, f, 1, 1<<20)
	out, err := m.Run("export", f, "--", "sh", "-c", `cat /proc/self/fd/3 | cmp - "$0" && printf %s "$HMCFS_EXPORT"`, f)
	must(t, err)
	var memory share.Memory
	must(t, json.Unmarshal([]byte(out), &memory))
	if memory.Size != 1<<20 || *memory.Pieces[0].FD != 3 || memory.Pieces[0].Path != "" {
		t.Errorf("the command is told %s", out)
	}
	eventuallyCut(t, f)
	for signal, code := range map[syscall.Signal]int{syscall.SIGKILL: -1, syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		create(t, f, 2, 1<<20)
		if got := signalCommand(t, f, signal); got != code {
			t.Errorf("after %v the exit code is %d, want %d", signal, got, code)
		}
		eventuallyCut(t, f)
	}
}

// signalCommand sends a signal to hmcfs while its command has a file's memory, and returns its
// exit code.
func signalCommand(t *testing.T, f string, signal syscall.Signal) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "export", f, "--", "cat")
	cmd.Args[0] = "hmcfs"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = stdin.Write([]byte("x"))
	must(t, err)
	_, err = io.ReadFull(stdout, make([]byte, 1)) // the command runs
	must(t, err)
	wantErrno(t, unix.Truncate(f, 1), unix.EBUSY)
	must(t, cmd.Process.Signal(signal))
	if signal == syscall.SIGKILL {
		must(t, stdin.Close()) // SIGKILL is not passed on to the command
	}
	_, err = io.Copy(io.Discard, stdout) // ends with the command
	must(t, err)
	_ = cmd.Wait() // the exit code is checked below
	return cmd.ProcessState.ExitCode()
}

// An export for a process ends with it.
func TestExportEndsWithItsHolder(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	f := m.Path("sim0", "f")
	create(t, f, 1, 1<<20)
	o := newMemOwner(t, 0, 1, 4096)
	out, err := m.Run("export", "--json", "--pid", fmt.Sprint(o.pid()), f)
	must(t, err)
	var memory share.Memory
	must(t, json.Unmarshal([]byte(out), &memory))
	if memory.PID != m.PID() {
		t.Errorf("the memory is said to be process %d's", memory.PID)
	}
	data, err := os.ReadFile(memory.Pieces[0].Path)
	must(t, err)
	if i := kit.DiffAt(data[:1<<20], 1, 0); i >= 0 {
		t.Errorf("%s: byte %d is wrong", memory.Pieces[0].Path, i)
	}
	wantErrno(t, unix.Truncate(f, 1), unix.EBUSY)
	o.kill()
	eventuallyCut(t, f)
}

// byHand is a session without the library, whose greeting has been read.
type byHand struct {
	*net.UnixConn

	channel *frames.Channel
	files   []*os.File
}

// Read implements io.Reader, for descriptors as well.
func (h *byHand) Read(b []byte) (int, error) {
	var none *owner.Guard
	in, err := none.Receive(h.UnixConn, 0, b)
	h.files = append(h.files, in.Files...)
	return max(in.N, 0), err
}

func sessionByHand(t *testing.T, m *mnt.M) *byHand {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(m.RuntimeDir, "admin.sock"), Net: "unix"})
	must(t, err)
	h := &byHand{UnixConn: c}
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.SetDeadline(time.Now().Add(mntPatience)))
	_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: 0\r\n\r\n",
		adminapi.PathSession, frames.Protocol)
	must(t, err)
	const hello = frames.HeaderSize + 4 + 32
	var head []byte
	for one := make([]byte, 1); ; head = append(head, one...) {
		if at := bytes.Index(head, []byte("\r\n\r\n")); at > 0 && len(head) == at+4+hello {
			break
		}
		if _, err = h.Read(one); err != nil {
			t.Fatalf("after %q: %v", head, err)
		}
	}
	if len(h.files) != 1 {
		t.Fatalf("%d descriptors came with the greeting", len(h.files))
	}
	h.channel, err = frames.AdoptChannel(h.files[0])
	must(t, err)
	t.Cleanup(func() { _ = h.channel.Close() })
	return h
}

// daemonFiles returns the number of the daemon's descriptors.
func daemonFiles(t *testing.T, m *mnt.M) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.PID()))
	must(t, err)
	return len(entries)
}

// Clients that disconnect in the middle, send garbage or stay silent leave no descriptors in
// the daemon, and do not block other clients.
func TestBadClientsLeaveNothing(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	f := m.Path("sim0", "f")
	create(t, f, 1, 1<<20)
	warm, err := client.Map(t.Context(), f)
	must(t, err)
	must(t, warm.Close())
	eventuallyCut(t, f)
	create(t, f, 1, 1<<20)
	before := daemonFiles(t, m)
	silent := sessionByHand(t, m)
	memory := memfd(t, 4096)
	defer func() { must(t, memory.Close()) }()
	at, err := os.OpenFile(f, unix.O_PATH, 0)
	must(t, err)
	defer func() { must(t, at.Close()) }()
	must(t, silent.channel.Send(1, []*os.File{at, memory})) // and no request
	for text, answered := range map[string]bool{
		"": false, "{": true, "{}": true, "[]": true, `{"memory":{}} {}`: true, `{"x":1}`: true, `{"hold":true,"kind":"?"}`: true,
	} {
		for _, verb := range []frames.RequestVerb{frames.RequestRegister, frames.RequestBind, frames.RequestExport, frames.RequestVerify} {
			for _, announced := range []int{1, 2, 3} {
				h := sessionByHand(t, m)
				must(t, h.channel.Send(1, []*os.File{at, memory}))
				b := append(frames.BeginRequest(nil, verb, announced, 1), text...)
				must(t, frames.Finish(b, 0))
				if !answered { // it is cut off
					b = b[:len(b)-1]
				}
				_, err := h.Write(b)
				must(t, err)
				if answered {
					head := make([]byte, frames.HeaderSize)
					_, err = io.ReadFull(h, head)
					must(t, err)
					if kind := frames.Kind(head[4]); kind != frames.KindFailure {
						t.Errorf("%q as request %d with %d descriptors was answered with kind %d", text, verb, announced, kind)
					}
				}
				must(t, errors.Join(h.Close(), h.channel.Close()))
			}
		}
	}
	// A descriptor of another file system is not accepted as proof.
	if _, err := m.Client().Export(t.Context(), memory, ""); err == nil || !strings.Contains(err.Error(), "first descriptor") {
		t.Errorf("a memfd in place of the file: %v", err)
	}
	must(t, errors.Join(silent.Close(), silent.channel.Close()))
	kit.Eventually(t, mntPatience, func() error {
		if now := daemonFiles(t, m); now > before {
			return fmt.Errorf("the daemon has %d descriptors, %d before", now, before)
		}
		return nil
	})
	must(t, unix.Truncate(f, 1)) // no export is left
}

// With plain HTTP, as from curl, root binds and exports files by name.
func TestPlainHTTPShares(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "tool:curl")
	m := mnt.Mount(t, mnt.Options{})
	f, g := m.Path("sim0", "f"), m.Path("sim0", "g")
	create(t, f, 1, 8192)
	ask := func(path, body string) string {
		return run(t, "curl", "-sS", "--unix-socket", filepath.Join(m.RuntimeDir, "admin.sock"), "http://hmcfs"+path, "-d", body)
	}
	var memory share.Memory
	must(t, json.Unmarshal([]byte(ask(adminapi.PathExport, `{"path":"sim0/f"}`)), &memory))
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/fd/%d", memory.PID, *memory.Pieces[0].FD))
	must(t, err)
	if i := kit.DiffAt(data[:8192], 1, 0); i >= 0 {
		t.Errorf("byte %d is wrong", i)
	}
	wantErrno(t, unix.Truncate(f, 1), unix.EBUSY)
	if answer := ask(adminapi.PathExport, fmt.Sprintf(`{"path":%q,"end":true}`, f)); !strings.Contains(answer, `"ended":true`) {
		t.Error(answer)
	}
	must(t, unix.Truncate(f, 1))
	o := newMemOwner(t, 0, 2, 4096)
	must(t, os.WriteFile(g, nil, 0o600))
	answer := ask(adminapi.PathBind, fmt.Sprintf(
		`{"ino":%d,"memory":{"family":"sim","pid":%d,"size":4096,"pieces":[%s]}}`, lstat(t, g).Ino, o.pid(), o.piece(0, 4096)))
	if !strings.Contains(answer, `"state":"bound"`) || !strings.Contains(answer, `"path":"sim0/g"`) {
		t.Error(answer)
	}
	wantContent(t, g, 2, 4096)
}
