package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// newerVersion is that of the program that a mount is upgraded to.
const newerVersion = "9.0.0"

// buildNewer builds hmcfs with another version. newFormat is set if its records have another format too, for which most
// packages are compiled again.
func buildNewer(t *testing.T, newFormat bool) (program string) {
	t.Helper()
	dir := t.TempDir()
	replaced := map[string]string{}
	replace := func(file, text, by string) {
		path, err := filepath.Abs(filepath.Join("..", file))
		must(t, err)
		source, err := os.ReadFile(path)
		must(t, err)
		other := strings.Replace(string(source), text, by, 1)
		if other == string(source) {
			t.Fatalf("%s does not have %q", file, text)
		}
		replaced[path] = filepath.Join(dir, filepath.Base(file))
		must(t, os.WriteFile(replaced[path], []byte(other), 0o600))
	}
	replace("cmd/hmcfs/cli/version.go", `const release = "`, `const release = "`+newerVersion+`" + "" //`)
	if newFormat {
		replace("metadata/codec.go", "const formatVersion = 2", "const formatVersion = 3")
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	must(t, errors.Join(err, os.WriteFile(filepath.Join(dir, "overlay"), overlay, 0o600)))
	return kit.Build(t, "../cmd/hmcfs", "-buildvcs=false", "-overlay", filepath.Join(dir, "overlay"))
}

// pretender makes a program that shows a version and fails to serve. change changes what it says.
func pretender(t *testing.T, path, of string, change func(v *adminapi.Version)) {
	t.Helper()
	answer, err := exec.Command(of, "version", "--json").Output()
	must(t, err)
	var v adminapi.Version
	must(t, json.Unmarshal(answer, &v))
	change(&v)
	answer, err = json.Marshal(v)
	must(t, err)
	must(t, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\n[ \"$1\" = version ] && echo '%s' && exit\nexit 3\n", answer), 0o755)) //nolint:gosec // a program
}

// TestUpgrade replaces the daemon under programs that use the mount, by one of another version and back. Programs that can't
// continue are refused, or followed by the one before. In make check the newer one has another format of records, and there is no
// way back.
func TestUpgrade(t *testing.T) {
	h := heldMount(t)
	program, err := exec.LookPath("hmcfs")
	must(t, err)
	newer, dir := buildNewer(t, kit.Exhaustive()), mnt.TempDir(t)
	broken, older, silent := filepath.Join(dir, "broken"), filepath.Join(dir, "older"), filepath.Join(dir, "silent")
	pretender(t, broken, newer, func(v *adminapi.Version) { v.Version = "9.0.1" })
	pretender(t, older, program, func(v *adminapi.Version) {
		v.Version = "0.0.1"
		f := v.Formats["record: inode"]
		f.Newest--
		v.Formats["record: inode"] = f
	})
	pretender(t, silent, program, func(v *adminapi.Version) { v.Formats = nil })
	back := ""
	if kit.Exhaustive() {
		back = `reads versions 1 to 2 of the format "record: store", and the mount has version 3`
	}
	h.use(map[string]func(*heldUser) error{
		"host/names": (*heldUser).names, "host/map": (*heldUser).mapped, "sim0/write": (*heldUser).write, "sim0/append": (*heldUser).append,
	}, func() {
		for _, step := range []struct {
			to, refusal string
			// ends is set if the process ends.
			ends bool
		}{
			{newer, "", true},
			{older, `version 0.0.1 can't continue this mount: it reads versions 1 to `, false},
			{silent, "does not say that it reads the format", false},
			{broken, "did not come to serve", true},
			{program, back, back == ""},
			{newer, "", true},
			{newer, "did not come to serve", true}, // replaced by one that fails
			{"/bin/true", "is not hmcfs", false},
			{filepath.Join(dir, "nothing"), "find the program", false},
		} {
			if step.to == newer && step.refusal != "" {
				must(t, os.Rename(broken, newer))
			}
			before := h.m.Status()
			out, err := h.m.Run("upgrade", "--program", step.to, h.m.Dir)
			if step.refusal == "" && err != nil || step.refusal != "" && (err == nil || !strings.Contains(err.Error(), step.refusal)) {
				t.Errorf("upgrade to %s: %v\n%s", step.to, err, out)
			}
			now, wants := h.m.Status(), before
			if step.refusal == "" {
				wants.Version, wants.Program = versionOf(t, step.to), step.to
			}
			if now.Version != wants.Version || now.Program != wants.Program && step.refusal == "" {
				t.Errorf("after an upgrade to %s, %s serves, of version %s, want %s", step.to, now.Program, now.Version, wants.Version)
			}
			if (now.PID != before.PID) != step.ends {
				t.Errorf("upgrade to %s: process %d is followed by %d", step.to, before.PID, now.PID)
			}
		}
	})
	h.checkEnd()
}

// versionOf returns the version of a program.
func versionOf(t *testing.T, program string) string {
	t.Helper()
	answer, err := exec.Command(program, "version", "--json").Output()
	must(t, err)
	var v adminapi.Version
	must(t, json.Unmarshal(answer, &v))
	return v.Version
}

// TestUpgradeByServiceManager has the test start the daemon again, as a service manager does.
func TestUpgradeByServiceManager(t *testing.T) {
	socket := filepath.Join(mnt.TempDir(t), "notify")
	told, err := net.ListenPacket("unixgram", socket)
	must(t, err)
	defer func() { must(t, told.Close()) }()
	h := &held{t: t, devices: []string{"host", "sim0"}, m: mnt.Prepare(t, mnt.Options{
		Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}, Env: []string{"NOTIFY_SOCKET=" + socket},
	})}
	h.m.Start()
	t.Cleanup(h.clear)
	must(t, os.WriteFile(h.m.Path("host", "file"), heldContent(), 0o600))
	must(t, os.WriteFile(h.m.Path("sim0", "file"), heldContent(), 0o600))
	before := h.m.Status()
	out, err := h.m.Run("upgrade", "--program", "/bin/true", h.m.Dir)
	if err == nil {
		t.Errorf("upgraded to /bin/true: %s", out)
	}
	other := filepath.Join(mnt.TempDir(t), "hmcfs")
	must(t, exec.Command("cp", before.Program, other).Run())
	out, err = h.m.Run("upgrade", "--program", other, h.m.Dir)
	if err == nil || !strings.Contains(err.Error(), "a service manager starts this daemon, from "+before.Program) || h.m.Status().PID != before.PID {
		t.Errorf("upgrade to a program of another path: %v\n%s", err, out)
	}
	program := filepath.Join(mnt.TempDir(t), "hmcfs")
	must(t, os.Symlink(before.Program, program))
	upgraded := make(chan error, 1)
	go func() {
		_, err := h.m.Run("upgrade", "--program", program, h.m.Dir)
		upgraded <- err
	}()
	kit.Eventually(t, time.Minute, func() bool { return unix.Kill(before.PID, 0) != nil })
	h.m.Start()
	must(t, <-upgraded)
	h.check(false)
	h.checkEnd()
}

// TestUpgradeOnFullDisks is refused, and changes nothing: no daemon could open the records again.
func TestUpgradeOnFullDisks(t *testing.T) {
	program, err := exec.LookPath("hmcfs")
	must(t, err)
	for _, full := range []string{"state", "runtime"} {
		t.Run(full, func(t *testing.T) {
			h := &held{t: t, devices: []string{"host", "sim0"}, m: mnt.Prepare(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}})}
			disks := map[string]string{"state": mnt.Tmpfs(t, "150m"), "runtime": mnt.Tmpfs(t, "24m")}
			h.m.StateDir, h.m.RuntimeDir = filepath.Join(disks["state"], "s"), filepath.Join(disks["runtime"], "r")
			h.m.Start()
			t.Cleanup(h.clear)
			must(t, os.WriteFile(h.m.Path("host", "file"), heldContent(), 0o600))
			must(t, os.WriteFile(h.m.Path("sim0", "file"), heldContent(), 0o600))
			filler := filepath.Join(disks[full], "filler")
			if out, err := exec.Command("dd", "if=/dev/zero", "of="+filler, "bs=64k").CombinedOutput(); err == nil {
				t.Fatalf("the disk is not full: %s", out)
			}
			before := h.m.Status()
			out, err := h.m.Run("upgrade", "--program", program, h.m.Dir)
			if err == nil || !strings.Contains(err.Error(), "free some space there") || h.m.Status().PID != before.PID {
				t.Errorf("%v: %s", err, out)
			}
			must(t, os.Remove(filler))
			if out, err = h.m.Run("upgrade", "--program", program, h.m.Dir); err != nil {
				t.Errorf("with space again: %v: %s", err, out)
			}
			h.check(false)
			// The program fills the disk and fails. The one before needs no room in the runtime directory, and waits for some in that of
			// the state.
			filling := filepath.Join(mnt.TempDir(t), "filling")
			pretender(t, filling, program, func(v *adminapi.Version) { v.Version = "9.0.2" })
			script, err := os.ReadFile(filling)
			must(t, err)
			script = bytes.Replace(script, []byte("exit 3"), []byte("dd if=/dev/zero of="+filler+" bs=64k; exit 3"), 1)
			must(t, os.WriteFile(filling, script, 0o755)) //nolint:gosec // a program
			ended := make(chan error, 1)
			go func() {
				_, failed := h.m.Run("upgrade", "--program", filling, h.m.Dir)
				ended <- failed
			}()
			if full == "state" {
				kit.Eventually(t, time.Minute, func() bool {
					_, then, _ := strings.Cut(h.m.Log(), "the program that was to follow does not serve")
					return strings.Contains(then, "free some space there")
				})
				must(t, os.Remove(filler))
			}
			if err = <-ended; err == nil || !strings.Contains(err.Error(), "did not come to serve, for the reason in the standard error of the daemon") {
				t.Errorf("the program that fails: %v", err)
			}
			h.check(false)
			h.checkEnd()
		})
	}
}

// TestUpgradeWithoutHolder is refused, and changes nothing.
func TestUpgradeWithoutHolder(t *testing.T) {
	m := mnt.Mount(t, mnt.Options{Extra: []string{"--no-hold"}})
	program, err := exec.LookPath("hmcfs")
	must(t, err)
	out, err := m.Run("upgrade", "--program", program, m.Dir)
	if err == nil || !strings.Contains(err.Error(), "has no holder") || m.Status().PID != m.PID() {
		t.Errorf("%v: %s", err, out)
	}
}
