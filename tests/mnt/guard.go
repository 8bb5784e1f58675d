package mnt

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// Base returns the directory below which all files of this test process are. The directory and
// the mounts below it are removed when the process ends.
func Base() string { return os.Getenv(baseEnv) }

// startGuard creates the base directory and starts the process that removes it when this one
// ends, which it detects by its end of a pipe.
func startGuard() (stop func(), err error) {
	base, err := os.MkdirTemp("", "hmcfs-test-")
	if err != nil {
		return nil, err
	}
	// Tests access it as other users.
	if err = os.Chmod(base, 0o755); err != nil {
		return nil, err
	}
	if err = os.Setenv(baseEnv, base); err != nil {
		return nil, err
	}
	cmd := Itself(guardName, append([]string{base}, programDir()...)...)
	cmd.Stderr = os.Stderr
	// A ^C is meant for the tests; the guard survives it, to clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = end.Close()
		_ = cmd.Wait() // it has reported its failures
	}, nil
}

// programDir returns the directory in which testscript.Main has put the program, in case that
// process cannot remove it itself.
func programDir() []string {
	path, err := exec.LookPath(programName)
	if err != nil {
		return nil
	}
	dir := filepath.Dir(filepath.Dir(path))
	if !strings.HasPrefix(filepath.Base(dir), "testscript-main") {
		return nil
	}
	return []string{dir}
}

// guard waits for the end of the test process and cleans up after it.
func guard() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if len(os.Args) < 2 || !filepath.IsAbs(os.Args[1]) {
		fmt.Fprintln(os.Stderr, "the guard needs the directory that it clears")
		os.Exit(2)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // the input ends with the tests
	if err := Clear(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "clear up after the tests: %v\n", err)
		os.Exit(1)
	}
	for _, dir := range os.Args[2:] {
		_ = os.RemoveAll(dir) // it exists only if the tests were killed
	}
}

// Clear ends every daemon that serves a mount below base, unmounts everything that is mounted
// there, and removes the directory.
func Clear(base string) error {
	killDaemons(base)
	if err := unmountBelow(base); err != nil {
		return err
	}
	removeLinks(base)
	return os.RemoveAll(base)
}

// killDaemons kills the processes with the program's name whose arguments or working files
// refer to the base directory.
func killDaemons(base string) {
	kit.KillHolders(base) // they would start the daemons again
	kit.KillBelow(base, func(args []string) bool { return filepath.Base(args[0]) == programName })
}

// unmountBelow unmounts everything below a directory, the newest mount first.
func unmountBelow(base string) error {
	mounts, err := place.Mounts()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		if strings.HasPrefix(m.MountPoint, base+"/") {
			if err := unix.Unmount(m.MountPoint, unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", m.MountPoint, err)
			}
		}
	}
	return nil
}

// removeLinks removes the links in the user's runtime directory that point below base: those of
// daemons that were killed.
func removeLinks(base string) {
	host := place.Host{UID: os.Geteuid(), Getenv: os.Getenv}
	paths, err := host.Of(base, base, "")
	if err != nil {
		return
	}
	dir := filepath.Dir(paths.DefaultRuntime)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if target, err := os.Readlink(name); err == nil && strings.HasPrefix(target, base+"/") {
			_ = os.Remove(name) // at worst a dangling link remains
		}
	}
}
