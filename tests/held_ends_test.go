package tests

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/holder"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// heldMount mounts with a holder. The daemon and the holder have ended when the test ends.
func heldMount(t *testing.T) *held {
	t.Helper()
	h := &held{t: t, devices: []string{"host", "sim0"}, m: mnt.Prepare(t, mnt.Options{
		Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"},
	})}
	h.m.Start()
	t.Cleanup(h.clear)
	return h
}

// kill kills the daemon, and returns its process. One that was killed before may end meanwhile: then it is the next that is killed.
func (h *held) kill() (pid int) {
	h.t.Helper()
	kit.Eventually(h.t, time.Minute, func() bool {
		pid = h.m.Living()
		return pid != 0 && unix.Kill(pid, unix.SIGKILL) == nil
	})
	return pid
}

// killHolder kills the holder, and returns when it is gone.
func (h *held) killHolder() {
	h.t.Helper()
	pid := h.m.Status().Holder.PID
	must(h.t, unix.Kill(pid, unix.SIGKILL))
	h.ends(pid)
}

// ends waits for the end of a process.
func (h *held) ends(pid int) {
	h.t.Helper()
	kit.Eventually(h.t, time.Minute, func() error {
		if unix.Kill(pid, 0) == nil {
			return fmt.Errorf("process %d has not ended", pid)
		}
		return nil
	})
}

// TestHeldEnds ends daemons and holders in each order that leaves nobody to continue.
func TestHeldEnds(t *testing.T) {
	for name, test := range map[string]func(h *held){
		"the holder alone":                         (*held).holderDies,
		"both":                                     (*held).bothDie,
		"a daemon that can't come back":            (*held).daemonCannotReturn,
		"daemons that fail once they serve":        (*held).daemonsFailLate,
		"daemons that are killed while they start": (*held).killedWhileStarting,
		"a second mount meanwhile":                 (*held).secondMount,
		"unmounted by force while no daemon lives": (*held).forcedUnmount,
		"an unmount while no daemon lives":         (*held).unmountMeanwhile,
		"an unmount without the holder":            (*held).unmountAlone,
	} {
		t.Run(name, func(t *testing.T) {
			h := heldMount(t)
			must(t, os.WriteFile(h.m.Path("host", "file"), heldContent(), 0o600))
			must(t, os.WriteFile(h.m.Path("sim0", "file"), heldContent(), 0o600))
			test(h)
		})
	}
}

// TestDeathWhileAPageIsRead kills the daemon, and the one that continues, while a program waits for a page of a
// map. One that continues drops the pages of open files, for which the kernel waits until that read is answered: were it a thread of the
// daemon that waits there, the daemon could not die.
func TestDeathWhileAPageIsRead(t *testing.T) {
	kit.Require(t, "tool:python3")
	m := mnt.Mount(t, mnt.Options{Faulty: true, Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}})
	data := kit.Bytes(8, 0, 1<<20)
	file := m.Path("sim0", "file")
	must(t, os.WriteFile(file, data, 0o600))
	m.Faults.Set(t, "sim0 copy-out delay 60s")
	program := exec.Command("python3", "-c", "import mmap, sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); print(m[70000:70100].hex())", file)
	var out, errs strings.Builder
	program.Stdout, program.Stderr = &out, &errs
	must(t, program.Start())
	waits := func() error {
		return kit.EveryThread(program.Process.Pid, "wchan", func(in string) bool { return in == "folio_wait_bit_common" || in == "request_wait_answer" })
	}
	kit.Eventually(t, time.Minute, waits)
	last := 0
	for range 3 {
		kit.Eventually(t, time.Minute, func() error {
			st, err := m.Client().Status(t.Context(), false)
			if err == nil && st.PID == last {
				err = errors.New("no other daemon has come")
			}
			if err == nil {
				last = st.PID
			}
			return err
		})
		kit.Eventually(t, time.Minute, waits)
		<-time.After(100 * time.Millisecond) // so that it has begun to drop pages
		must(t, unix.Kill(last, unix.SIGKILL))
	}
	m.Faults.Set(t)
	must(t, program.Wait())
	if got := strings.TrimSpace(out.String()); got != hex.EncodeToString(data[70000:70100]) {
		t.Errorf("the map has %s, %s", got, errs.String())
	}
}

// TestHeldFullDisk kills the daemon while the disk of its records is full. Programs wait until there is room, for more starts than
// a daemon has that fails for another reason, and nothing is lost.
func TestHeldFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("the pauses between ten starts are 11 seconds")
	}
	h, fill := heldFull(t, "state")
	keeper, err := holder.Dial(filepath.Join(h.m.RuntimeDir, "hold.sock"))
	must(t, err)
	defer func() { must(t, keeper.Close()) }()
	h.m.KillDaemon()
	kit.Eventually(t, time.Minute, func() error {
		status, fault := keeper.Status()
		if fault == nil && status.Deaths < 10 {
			fault = fmt.Errorf("%d daemons have died", status.Deaths)
		}
		return fault
	})
	must(t, os.Remove(fill))
	h.checkGrown()
}

// TestHeldFullRuntime kills the daemon while the disk of its runtime directory is full, of which the next one needs nothing.
func TestHeldFullRuntime(t *testing.T) {
	h, fill := heldFull(t, "runtime")
	h.m.KillDaemon()
	h.checkGrown()
	must(t, os.Remove(fill))
}

// heldFull returns a mount that has the state or the runtime directory on a full disk, which a file fills. Its last changes found room there.
func heldFull(t *testing.T, what string) (h *held, fill string) {
	t.Helper()
	h = heldMount(t)
	h.m.Umount()
	disk := mnt.Tmpfs(t, "256m")
	if what == "state" {
		h.m.StateDir = filepath.Join(disk, what)
	} else {
		h.m.RuntimeDir = filepath.Join(disk, what)
	}
	h.m.Start()
	for _, name := range []string{"host/file", "sim0/file", "host/gone", "sim0/gone", "host/grown", "sim0/grown"} {
		must(t, os.WriteFile(h.m.Path(name), heldContent(), 0o600))
	}
	f, err := os.Create(filepath.Join(disk, "fill"))
	must(t, err)
	for piece := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(piece)
	}
	wantErrno(t, errors.Join(err, f.Close()), unix.ENOSPC)
	for _, device := range h.devices {
		must(t, os.Remove(h.m.Path(device, "gone")))
		grown, fault := os.OpenFile(h.m.Path(device, "grown"), os.O_WRONLY|os.O_APPEND, 0)
		must(t, fault)
		_, fault = grown.Write(heldContent())
		must(t, errors.Join(fault, grown.Close()))
	}
	return h, f.Name()
}

// checkGrown checks that the mount of heldFull goes on, with all changes.
func (h *held) checkGrown() {
	h.t.Helper()
	_, err := os.ReadDir(h.m.Path("host"))
	must(h.t, err)
	h.check(false)
	for _, device := range h.devices {
		got, err := os.ReadFile(h.m.Path(device, "grown"))
		must(h.t, errors.Join(err, kit.Same(device+"/grown", got, slices.Concat(heldContent(), heldContent()))))
		wantErrno(h.t, os.Remove(h.m.Path(device, "gone")), unix.ENOENT)
		must(h.t, kit.WriteNew(h.m.Path(device, "new"), heldContent()))
	}
}

// TestHeldOutOfMemory has the kernel kill the daemon for want of memory, in a cgroup of the daemon, its holder and a program that takes
// all of it. The holder is spared, and a daemon that it has started is as likely to be killed as the first one was.
func TestHeldOutOfMemory(t *testing.T) {
	kit.Require(t, "cgroup", "root", "tool:tail")
	group, err := kit.NewMemoryGroup("hmcfs-held", 256<<20)
	must(t, err)
	t.Cleanup(func() { must(t, group.Remove()) })
	h := heldMount(t)
	first := h.m.Status()
	must(t, errors.Join(group.Add(first.PID), group.Add(first.Holder.PID)))
	usual := oomOf(t, first.PID)
	if exec.Command("sh", "-c", "echo -900 >/proc/self/oom_score_adj").Run() == nil { // in containers even root may not
		if spared := oomOf(t, first.Holder.PID); spared != "-900" {
			t.Errorf("the holder's oom_score_adj is %s", spared)
		}
	}
	h.use(map[string]func(*heldUser) error{
		"host/names": (*heldUser).names, "host/map": (*heldUser).mapped, "sim0/write": (*heldUser).write,
		"sim0/append": (*heldUser).append, "sim0/nameless": (*heldUser).nameless,
	}, func() {
		for range kit.Rounds(1, 1, 20) {
			h.others(func() {
				must(t, os.WriteFile(oomFile(h.m.Status().PID), []byte("1000"), 0)) // it is killed first
				words := append(group.Before(), "tail", "/dev/zero")                // which keeps a line, and there is no end of it
				hog := exec.Command(words[0], words[1:]...)
				must(t, hog.Start())
				if err := hog.Wait(); err == nil { // the kernel kills it in its turn
					t.Error("the memory suffices")
				}
			})
		}
	})
	last := h.m.Status()
	if last.Holder.PID != first.Holder.PID || last.Holder.Deaths == 0 {
		t.Errorf("the holder %+v was followed by %+v", first.Holder, last.Holder)
	}
	if now := oomOf(t, last.PID); now != usual {
		t.Errorf("the daemon's oom_score_adj is %q after %q", now, usual)
	}
	h.checkEnd()
}

// oomFile returns the file that says how likely the kernel kills a process when memory is short.
func oomFile(pid int) string { return fmt.Sprintf("/proc/%d/oom_score_adj", pid) }

func oomOf(t *testing.T, pid int) string {
	t.Helper()
	data, err := os.ReadFile(oomFile(pid))
	must(t, err)
	return strings.TrimSpace(string(data))
}

// heldContent returns the content of the files of TestHeldEnds.
func heldContent() []byte { return kit.Bytes(5, 0, 100000) }

// check reads the files; simLost is set if the one of device memory must be lost.
func (h *held) check(simLost bool) {
	h.t.Helper()
	got, err := os.ReadFile(h.m.Path("host", "file"))
	must(h.t, errors.Join(err, kit.Same("host/file", got, heldContent())))
	got, err = os.ReadFile(h.m.Path("sim0", "file"))
	if simLost {
		if !errors.Is(err, unix.EIO) {
			h.t.Errorf("reading lost memory: %d bytes, %v", len(got), err)
		}
		return
	}
	must(h.t, errors.Join(err, kit.Same("sim0/file", got, heldContent())))
}

// holderDies ends the holder alone: the daemon goes on, and its death is one without a holder.
func (h *held) holderDies() {
	h.t.Helper()
	h.killHolder()
	kit.Eventually(h.t, time.Minute, func() error {
		if s := h.m.Status(); s.Holder == nil || s.Holder.PID != 0 {
			return fmt.Errorf("the holder in the status is %+v", s.Holder)
		}
		return nil
	})
	must(h.t, os.WriteFile(h.m.Path("sim0", "more"), heldContent(), 0o600))
	h.check(false)
	h.m.Kill()
	h.m.Start() // a mount that is dead, as without a holder
	h.check(true)
}

// bothDie ends both.
func (h *held) bothDie() {
	h.t.Helper()
	h.killHolder()
	h.m.Kill()
	if _, err := os.ReadDir(h.m.Path("host")); !errors.Is(err, unix.ENOTCONN) {
		h.t.Errorf("a mount without anybody: %v", err)
	}
	h.m.Start()
	h.check(true)
}

// daemonCannotReturn damages the records, so that the holder gives up, and mends them. Mounts that
// fail, before they have the records and after they have mounted, leave the memory.
func (h *held) daemonCannotReturn() {
	h.t.Helper()
	records, aside := filepath.Join(h.m.StateDir, "metadata"), filepath.Join(h.m.StateDir, "elsewhere")
	must(h.t, unix.Kill(h.m.Living(), unix.SIGSTOP))
	must(h.t, os.Rename(records, aside))
	must(h.t, os.WriteFile(records, []byte("no directory"), 0o600))
	h.m.KillDaemon()
	// Programs wait until the holder gives up.
	kit.Eventually(h.t, time.Minute, func() error {
		if _, err := os.ReadDir(h.m.Path("host")); !errors.Is(err, unix.ENOTCONN) {
			return fmt.Errorf("a mount that was given up: %w", err)
		}
		return nil
	})
	if out, err := h.m.Run("status", h.m.Dir); err == nil || !strings.Contains(err.Error(), "could not continue (see its log)") {
		h.t.Errorf("status of a mount that was given up: %v, %s", err, out)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(h.t, err)
	h.mountFails("not a directory")
	must(h.t, errors.Join(os.Remove(records), os.Rename(aside, records)))
	h.mountFails("address already in use", "--metrics", taken.Addr().String())
	must(h.t, taken.Close())
	h.m.Start() // a new mount, with the memory that the holder has kept
	h.check(false)
}

// daemonsFailLate has daemons continue the mount, and then fail: programs notice nothing.
func (h *held) daemonsFailLate() {
	h.t.Helper()
	keeper, err := holder.Dial(filepath.Join(h.m.RuntimeDir, "hold.sock"))
	must(h.t, err)
	defer func() { must(h.t, keeper.Close()) }()
	socket := filepath.Join(h.m.RuntimeDir, "admin.sock")
	must(h.t, unix.Kill(h.m.Living(), unix.SIGSTOP))
	must(h.t, errors.Join(os.Remove(socket), os.MkdirAll(filepath.Join(socket, "full"), 0o700)))
	h.m.KillDaemon()
	kit.Eventually(h.t, time.Minute, func() error {
		h.check(false)
		status, err := keeper.Status()
		if err == nil && status.Deaths < 3 {
			err = fmt.Errorf("%d daemons have died", status.Deaths)
		}
		return err
	})
	must(h.t, os.RemoveAll(socket))
	h.check(false)
}

// killedWhileStarting kills each second daemon at another moment of its start, from the lock of its directory on: before it has the holder's
// descriptors, while it recovers device memory and opens files again, when the kernel repeats its requests, and after that.
func (h *held) killedWhileStarting() {
	h.t.Helper()
	h.use(map[string]func(*heldUser) error{
		"host/write": (*heldUser).write, "host/namelessdir": (*heldUser).namelessDir,
		"sim0/append": (*heldUser).append, "sim0/nameless": (*heldUser).nameless,
	}, func() {
		rounds := kit.Rounds(3, 8, 60)
		for i := range rounds {
			last := h.kill()
			kit.Eventually(h.t, time.Minute, func() bool { return h.m.Living() != 0 && h.m.Living() != last })
			<-time.After(150 * time.Millisecond * time.Duration(i) / time.Duration(rounds)) // about as long as a start takes
			h.kill()
		}
	})
	h.check(false)
}

// mountFails mounts, which fails for a reason.
func (h *held) mountFails(why string, with ...string) {
	h.t.Helper()
	args := append([]string{
		"mount", "--device", "host,size=64MiB", "--device", "sim:0,size=64MiB",
		"--state-dir", h.m.StateDir, "--runtime-dir", h.m.RuntimeDir,
	}, with...)
	if out, err := h.m.Run(append(args, h.m.Dir)...); err == nil || !strings.Contains(err.Error(), why) {
		h.t.Errorf("a mount that must fail with %q: %v, %s", why, err, out)
	}
}

// secondMount mounts while the daemon lives, and again when it has just died.
func (h *held) secondMount() {
	h.t.Helper()
	if out, err := h.m.Run("mount", "--state-dir", h.m.StateDir, "--runtime-dir", h.m.RuntimeDir, h.m.Dir); err == nil || !strings.Contains(err.Error(), "already in use") {
		h.t.Errorf("a second mount: %v, %s", err, out)
	}
	before := h.kill()
	// It races with the daemon that the holder starts; one of them serves.
	out, err := h.m.Run("mount", "--device", "host,size=64MiB", "--device", "sim:0,size=64MiB",
		"--state-dir", h.m.StateDir, "--runtime-dir", h.m.RuntimeDir, h.m.Dir)
	if err != nil && !strings.Contains(err.Error(), "in use") && !strings.Contains(err.Error(), "owns this holder") {
		h.t.Errorf("a mount beside the holder: %v, %s", err, out)
	}
	h.check(false)
	kit.Eventually(h.t, time.Minute, func() error { // its files are there before its socket is
		now, err := h.m.Client().Status(h.t.Context(), false)
		if err == nil && (now.PID == before || now.Holder.Deaths == 0) {
			h.t.Errorf("process %d serves, %+v", now.PID, now.Holder)
		}
		return err
	})
}

// forcedUnmount has the kernel unmount while no daemon lives.
func (h *held) forcedUnmount() {
	h.t.Helper()
	holder := h.m.Status().Holder.PID
	h.kill()
	must(h.t, unix.Unmount(h.m.Dir, unix.MNT_DETACH))
	h.ends(holder)
	if left := mnt.MountedBelow(h.m.Dir); len(left) > 0 {
		h.t.Errorf("mounted are %v", left)
	}
}

// unmountMeanwhile unmounts while no daemon lives.
func (h *held) unmountMeanwhile() {
	h.t.Helper()
	holder := h.m.Status().Holder.PID
	h.kill()
	if out, err := h.m.Run("umount", h.m.Dir); err != nil {
		h.t.Errorf("unmount: %v\n%s", err, out)
	}
	h.ends(holder)
}

// unmountAlone unmounts when the holder has ended: nothing that it kept is left to be dropped.
func (h *held) unmountAlone() {
	h.t.Helper()
	h.killHolder()
	h.m.Umount()
}
