package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
)

// upgradeLimit bounds the time until a daemon serves again, or has none to follow it: with a full disk the holder tries for 66 seconds.
const upgradeLimit = 90 * time.Second

func (m mountVerbs) upgradeVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade [--program PATH] [MOUNTPOINT]",
		Short: "Replace the daemon by another program",
		Long: "Replace the daemon of a mount by this program, or by the one of --program, with\n" +
			"the same options. The mount goes on: programs wait for a moment, and their files stay open.\n" +
			"A program that does not read what the daemon leaves is refused. If the new program does not\n" +
			"come to serve, the one before continues.",
		Example: "  hmcfs upgrade /mnt/hmc\n" +
			"  hmcfs upgrade --program ./bin/hmcfs /mnt/hmc",
		Args: arguments(0, 1, "at most one MOUNTPOINT"),
	}
	program := cmd.Flags().String("program", "", "Program that continues the mount. Default: the one that runs this command.")
	return runs(cmd, func(ctx context.Context, args []string) error { return m.upgrade(ctx, args, *program) })
}

// mountVerbs are the commands for mounts that a daemon serves.
type mountVerbs struct{ *app }

func (m mountVerbs) upgrade(ctx context.Context, args []string, program string) error {
	path, err := os.Executable()
	if program != "" {
		path, err = exec.LookPath(program)
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	var real string // as the daemon will name itself
	if err == nil {
		real, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	at, c, err := m.daemonFor(ctx, args)
	if err != nil {
		return err
	}
	before, err := c.Status(ctx, false)
	if err != nil {
		return err
	}
	begin := time.Now()
	next, err := c.Upgrade(ctx, adminapi.UpgradeRequest{Program: path})
	if err != nil {
		return fmt.Errorf("upgrade %s: %w", at.MountPoint, err)
	}
	now, err := m.follower(ctx, at, before)
	switch {
	case err != nil:
		return err
	case now.Program != real || !isFile(now.PID, real):
		return fmt.Errorf("upgrade %s: %s (version %s) did not come to serve, for the reason in %s; %s (version %s) continues", at.MountPoint, path, next.Version, logOf(now), now.Program, now.Version)
	}
	m.note("%s: process %d (version %s) is replaced by process %d (version %s), in %d ms",
		at.MountPoint, before.PID, before.Version, now.PID, now.Version, time.Since(begin).Milliseconds())
	return nil
}

// logOf names the log of a daemon for a sentence.
func logOf(st adminapi.Status) string {
	if st.LogFile == "" {
		return "the standard error of the daemon"
	}
	return st.LogFile
}

// isFile reports whether a process runs a file, not one that was at its path before. It is assumed of one that can't
// be looked at, such as in another namespace of processes.
func isFile(pid int, path string) bool {
	runs, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return true
	}
	at, err := os.Stat(path)
	return err == nil && os.SameFile(runs, at)
}

// follower waits until another process than before serves the mount, and returns its status.
func (m mountVerbs) follower(ctx context.Context, at place.Mount, before adminapi.Status) (adminapi.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, upgradeLimit)
	defer cancel()
	places, _ := m.host().Find(at.MountPoint, at.Owner())
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, p := range places {
			st, err := client.NewOf(p.Socket(), at.Owner()).Status(ctx, false)
			if err == nil && st.PID != before.PID && st.MountPoint == at.MountPoint {
				return st, nil
			}
		}
		if text := kept(places); text != "" {
			return adminapi.Status{}, fmt.Errorf("the daemon of %s has ended%s; remove the cause, and mount it again", at.MountPoint, text)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return adminapi.Status{}, fmt.Errorf("no daemon has come to serve %s within %v, for the reason in %s", at.MountPoint, upgradeLimit, logOf(before))
		}
	}
}
