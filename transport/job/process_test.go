package job_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/spread"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/job"
)

// rankOf makes a process of the tests that rank of a job of three.
const rankOf, dirOf, backendOf = "HMCFS_TEST_JOB_RANK", "HMCFS_TEST_JOB_DIR", "HMCFS_TEST_JOB_BACKEND"

func TestMain(m *testing.M) {
	text := os.Getenv(rankOf)
	if text == "" {
		spread.Main(m)
	}
	rank, err := strconv.Atoi(text)
	if err == nil {
		err = beRank(rank, os.Getenv(dirOf), job.Backend(os.Getenv(backendOf)))
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "rank", text, "ends:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// beRank runs a rank: it fills its window, and waits for the others until one has ended.
func beRank(rank int, dir string, b job.Backend) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	j, err := job.Init(ctx, job.Options{Rank: rank, World: 3, Dir: dir, Backend: b})
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }()
	w, err := j.World().AllocWindows(ctx, 1<<20)
	if err != nil {
		return err
	}
	kit.FillAt(w.Local(), uint64(rank), 0)
	for err == nil {
		err = j.World().Barrier(ctx)
	}
	if !errors.Is(err, fabric.ErrLink) {
		return fmt.Errorf("not a link that was lost: %w", err)
	}
	return nil
}

// TestKilled kills a rank: the others notice, nothing is left, and the job can be started
// again in the same directory.
func TestKilled(t *testing.T) {
	kit.Check(t, kit.Ignore("/hmcfs-"))
	for _, b := range []job.Backend{job.SHM, job.TCP} {
		dir := t.TempDir()
		for range 2 {
			killOne(t, dir, b)
		}
	}
}

// named returns the named files on tmpfs that a process has mapped or open. A process
// without any can't leave one behind. Comparing the content of /dev/shm would prove
// nothing, as other programs create files there.
func named(t *testing.T, pid int) (all []string) {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, " /dev/shm/") {
			all = append(all, line)
		}
	}
	open, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if target, _ := os.Readlink(filepath.Join(proc, "fd", fd.Name())); strings.HasPrefix(target, "/dev/shm/") {
			all = append(all, target)
		}
	}
	return all
}

func killOne(t *testing.T, dir string, b job.Backend) {
	t.Helper()
	var others []*exec.Cmd
	for _, rank := range []int{1, 2} {
		c := exec.CommandContext(within(t), os.Args[0])
		c.Env = append(os.Environ(), rankOf+"="+strconv.Itoa(rank), dirOf+"="+dir, backendOf+"="+string(b))
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		others = append(others, c)
	}
	ctx := within(t)
	j, err := job.Init(ctx, job.Options{Rank: 0, World: 3, Dir: dir, Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if cerr := j.Close(); cerr != nil {
			t.Error(cerr)
		}
	}()
	w, err := j.World().AllocWindows(ctx, 1<<20)
	if err == nil {
		err = j.World().Barrier(ctx)
	}
	got := make([]byte, 1<<20)
	if err == nil {
		err = w.Get(ctx, 2, 0, got)
	}
	if err != nil || kit.DiffAt(got, 2, 0) >= 0 {
		t.Fatalf("the window of rank 2: %v", err)
	}
	for _, pid := range []int{os.Getpid(), others[0].Process.Pid, others[1].Process.Pid} {
		if all := named(t, pid); len(all) > 0 {
			t.Errorf("process %d has %v, which would stay when it is killed", pid, all)
		}
	}
	if err = others[1].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = j.World().Barrier(ctx)
	}
	if _, lost := errors.AsType[*fabric.LinkError](err); !lost {
		t.Errorf("rank 2 was killed, and that is %v", err)
	}
	if there := w.Of(2); there != nil && kit.DiffAt(there, 2, 0) >= 0 {
		t.Error("the window of a rank that is gone has changed")
	}
	if err = others[0].Wait(); err != nil {
		t.Errorf("rank 1: %v", err)
	}
	if err = others[1].Wait(); err == nil {
		t.Error("rank 2 was not killed")
	}
}
