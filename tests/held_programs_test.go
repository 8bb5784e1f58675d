package tests

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestHeldPrograms upgrades the daemon and kills it, in turns, under programs of others: fio, which verifies what it has
// written, and git, which clones a repository. They end without an error, and what they have made is whole. For 30 of each:
//
//	go test ./tests -run TestHeldPrograms -kills 30 -timeout 10m
func TestHeldPrograms(t *testing.T) {
	if !kit.Exhaustive() && *kills == 0 {
		t.Skip("make check runs it")
	}
	kit.Require(t, "tool:fio", "tool:git")
	h := heldMount(t)
	program, err := exec.LookPath("hmcfs")
	must(t, err)
	origin := repository(t)
	fio := func(w *heldUser) error { return w.fio() }
	clone := func(w *heldUser) error { return w.clone(origin) }
	h.use(map[string]func(*heldUser) error{
		"host/fio": fio, "sim0/fio": fio, "host/clone": clone, "sim0/clone": clone,
	}, func() {
		for range cmp.Or(*kills, 10) {
			h.others(func() {
				if out, err := h.m.Run("upgrade", "--program", program, h.m.Dir); err != nil {
					t.Errorf("upgrade: %v\n%s", err, out)
				}
			})
			h.others(func() { must(t, unix.Kill(h.m.Status().PID, unix.SIGKILL)) })
		}
	})
	h.checkEnd()
}

// others has the daemon replaced at a random moment, and returns once another one serves.
func (h *held) others(replace func()) {
	h.t.Helper()
	before := h.m.Status().PID
	<-time.After(time.Duration(rand.IntN(500)) * time.Millisecond)
	replace()
	kit.Eventually(h.t, time.Minute, func() error {
		st, err := h.m.Client().Status(h.t.Context(), false)
		if err == nil && st.PID == before {
			err = fmt.Errorf("process %d has not been replaced", before)
		}
		return err
	})
}

// repository makes a repository of git with some hundred files in two commits, and returns its directory.
func repository(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(mnt.TempDir(t), "origin")
	must(t, os.Mkdir(dir, 0o755))
	must(t, git(dir, "init", "--quiet"))
	for commit := range 2 {
		for i := range 300 {
			folder := filepath.Join(dir, fmt.Sprintf("%d.%d", commit, i%20))
			must(t, os.MkdirAll(folder, 0o755))
			must(t, os.WriteFile(filepath.Join(folder, strconv.Itoa(i)), kit.Bytes(uint64(i), 0, 40*i), 0o600))
		}
		must(t, git(dir, "add", "."))
		must(t, git(dir, "commit", "--quiet", "--message", strconv.Itoa(commit)))
	}
	return dir
}

// git runs git in a directory, with no configuration of this machine. What it says of changes is an error, too.
func git(dir string, args ...string) error {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		return fmt.Errorf("git %s: %w: %.2000s", args[0], err, out)
	}
	return nil
}

// fio writes a file at random and reads it meanwhile, by each way of one round, and verifies each block at the end.
func (w *heldUser) fio() error {
	way := [][]string{
		{"--ioengine=psync", "--bsrange=512-64k"},
		{"--ioengine=libaio", "--direct=1", "--iodepth=16", "--bs=4k"},
		{"--ioengine=mmap", "--bs=4k"},
	}[w.round%3]
	out, err := exec.Command("fio", append([]string{
		"--name=job", "--directory=" + w.dir, "--size=8m", "--rw=randrw", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0",
		"--randseed=" + strconv.Itoa(w.round+1), "--unlink=1", "--group_reporting",
	}, way...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("fio %s: %w: %.2000s", way[0], err, out)
	}
	return nil
}

// clone clones a repository by the two ways of git, checks the clone, and removes it.
func (w *heldUser) clone(origin string) error {
	to := filepath.Join(w.dir, strconv.Itoa(w.round))
	how := []string{"--no-hardlinks", "--no-local"}[w.round%2]
	return kit.InOrder(
		func() error { return git(w.dir, "clone", "--quiet", how, origin, to) },
		func() error { return git(to, "fsck", "--full", "--no-progress") },
		func() error { return git(to, "status", "--porcelain", "--ignored") },
		func() error {
			if out, err := exec.Command("diff", "--recursive", "--exclude=.git", origin, to).CombinedOutput(); err != nil {
				return fmt.Errorf("the clone differs: %w: %.2000s", err, out)
			}
			return nil
		},
		func() error { return os.RemoveAll(to) },
	)
}
