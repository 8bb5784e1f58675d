package suites

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// needed are the programs that the script calls.
func needed() []string {
	return []string{
		"bash", "sh", "dirname", "realpath", "mktemp", "rm", "mkdir", "tail", "head", "sed", "grep", "timeout", "sleep",
		"mountpoint", "id", "umount", "cp", "seq", "printf",
	}
}

// runner is one call of the script on the host tier, with programs of a test's
// own. Nothing may be left of it, whatever its end.
type runner struct {
	cmd     *exec.Cmd
	out     strings.Builder
	scratch string
}

func newRunner(t *testing.T, hmcfs string, programs map[string]string) *runner {
	t.Helper()
	bin := t.TempDir()
	for _, name := range needed() {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := &runner{cmd: exec.Command("./suites.sh", "host"), scratch: t.TempDir()}
	r.cmd.Env = append(os.Environ(), "HMCFS="+hmcfs, "TMPDIR="+r.scratch, "PATH="+bin)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	r.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	t.Cleanup(func() {
		// Mounts are below it, so none of them is left either.
		if left, err := filepath.Glob(r.scratch + "/*"); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	return r
}

func TestScript(t *testing.T) {
	kit.Require(t, "fuse", "root")
	hmcfs := kit.Build(t, "../../cmd/hmcfs")
	// Both do something on the mount, where they are told to.
	const fio = `for a; do case $a in --directory=*) echo content >"${a#*=}/job" && exec grep -q content "${a#*=}/job";; esac; done; exit 9`
	const stress = `[ "$1" = --temp-path ] && [ -d "$2" ]`
	for name, c := range map[string]struct {
		programs map[string]string
		env      string
		status   int
		says     []string
	}{
		"all passes": {
			map[string]string{"fio": fio, "stress-ng": stress},
			"", 0,
			[]string{"ok       fio shared maps on host\n", "ok       stress-ng rename on host\n", " 0 failed, 0 skipped\n"},
		},
		"both are missing": {nil, "", 0, []string{
			"skipped  fio on host: it is not installed\n", "skipped  stress-ng on host: it is not installed\n",
			"suites: 1 passed, 0 failed, 2 skipped\n",
		}},
		"fio sees a wrong byte": {
			map[string]string{"fio": `echo "verify: bad magic header"; exit 84`, "stress-ng": stress},
			"", 1,
			[]string{"FAILED   fio in order on host: exit status 84\n", "           verify: bad magic header\n", " 8 failed, 0 skipped\n"},
		},
		"one fails, one can not run": {
			map[string]string{"fio": fio, "stress-ng": `case $3 in
--rename) echo "stress-ng: fail:  [7] rename: lost a file"; exit 2;;
--handle) echo "stress-ng: info:  [7] handle stressor will be skipped"; exit 3;;
esac`},
			"", 1,
			[]string{
				"FAILED   stress-ng rename on host: exit status 2\n", "rename: lost a file\n",
				"skipped  stress-ng handle on host: handle stressor will be skipped\n", " 1 failed, 1 skipped\n",
			},
		},
		"a stressor hangs": {
			map[string]string{"stress-ng": `[ "$3" != --flock ] || exec sleep 600`},
			"LIMIT=10", 1,
			[]string{"FAILED   stress-ng flock on host: not done after 10 s\n", " 1 failed, 1 skipped\n"},
		},
		"the daemon ends": {
			map[string]string{"stress-ng": `[ "$3" != --flock ] || ` + hmcfs + ` umount --force "${2%/host/suites}"; [ -d "$2" ]`},
			"", 1,
			[]string{"FAILED   stress-ng xattr on host: ", "FAILED   removing all and unmounting host: "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t, hmcfs, c.programs)
			if c.env != "" {
				r.cmd.Env = append(r.cmd.Env, c.env)
			}
			err := r.cmd.Run()
			var ended *exec.ExitError
			if err != nil && !errors.As(err, &ended) {
				t.Fatal(err)
			}
			if status := r.cmd.ProcessState.ExitCode(); status != c.status {
				t.Errorf("exit status %d, want %d", status, c.status)
			}
			for _, text := range c.says {
				if !strings.Contains(r.out.String(), text) {
					t.Errorf("no %q in\n%s", text, &r.out)
				}
			}
		})
	}
	t.Run("terminated", func(t *testing.T) { terminated(t, hmcfs) })
}

// terminated ends the script while a suite works on the mount.
func terminated(t *testing.T, hmcfs string) {
	t.Helper()
	r := newRunner(t, hmcfs, map[string]string{
		"fio": `for a; do case $a in --directory=*) cd "${a#*=}" && : >begun && exec sleep 600;; esac; done`,
	})
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, time.Minute, func() bool {
		found, err := filepath.Glob(r.scratch + "/*/mnt/host/suites/begun")
		return err == nil && len(found) > 0
	})
	if err := r.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = r.cmd.Wait() // its status is looked at below
	if status := r.cmd.ProcessState.ExitCode(); status != 143 {
		t.Errorf("exit status %d\n%s", status, &r.out)
	}
}
