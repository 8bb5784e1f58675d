package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/lab"
)

// killForMemory starts a process in the daemon's cgroup that allocates memory until the
// kernel kills the daemon, which is configured to be killed first.
func (r *run) killForMemory(ctx context.Context, n *lab.Node) error {
	pid := n.PID()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0o644); err != nil {
		return err
	}
	words := append(r.groups[n.Name].Before(), "/proc/self/exe")
	// /proc/self of the shell is not this program.
	words[len(words)-1] = fmt.Sprintf("/proc/%d/exe", os.Getpid())
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), roleEnv+`={"kind":"hog"}`)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	deadline := time.Now().Add(2 * r.slack)
	for n.Runs() == nil && time.Now().Before(deadline) && r.sleep(ctx, 50*time.Millisecond) {
	}
	if n.Runs() == nil {
		r.violate("setup: the kernel has not killed the daemon for want of memory")
	} else {
		fmt.Fprintf(r.out, "%8.3f s  the daemon of %s was killed for want of memory\n", time.Since(r.start).Seconds(), n.Name)
	}
	_ = cmd.Process.Kill() // it may have been killed too
	_ = cmd.Wait()         // it was killed
	n.Kill()
	return nil
}

// hog allocates memory until it is killed.
func hog() error {
	for {
		p, err := unix.Mmap(-1, 0, int(4*devices.MiB), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		for i := 0; i < len(p); i += 4096 {
			p[i] = 1
		}
	}
}
