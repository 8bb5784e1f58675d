package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The prefixes of the names of a job's directories: only directories with them are removed.
const (
	jobPrefix     = "hmcfs-job-"
	outsidePrefix = ".hmcfs-job-"
)

// Reserved reports whether a variable is set by the runner.
func Reserved(name string) bool { return reserved(name) || name == marker }

// Knob reports whether a variable is a setting of the library, by our name or by hcomm's:
// such variables are passed to ranks on all hosts.
func Knob(name string) bool {
	return strings.HasPrefix(name, "HCCL_") || strings.HasPrefix(name, "HMCFS_") && !Reserved(name)
}

// reserved reports whether a variable is set by the runner: supervisors derive from some of
// them what to remove and kill.
func reserved(name string) bool {
	begins := func(p string) bool { return strings.HasPrefix(name, p) }
	return slices.ContainsFunc([]string{"HMCFS_RANK", "HMCFS_LOCAL_", "HMCFS_JOB", "HMCFS_WINDOW", "HMCFS_BUFFER_"}, begins) ||
		slices.Contains([]string{
			"HMCFS_WORLD", "HMCFS_ROOT", "HMCFS_SECRET_FILE", "HMCFS_BOOK", "HMCFS_LISTEN", "HMCFS_HOST", "HMCFS_CONTEXT", "HMCFS_BARRIER", "HMCFS_BINARY", outEnv,
		}, name)
}

// checkJob checks that a directory is a job's, as made by a runner: accessible to its user
// only.
func checkJob(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("not started by hmcfs run: %w", err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !filepath.IsAbs(dir) || !strings.HasPrefix(filepath.Base(dir), jobPrefix) || !st.IsDir() || st.Mode().Perm()&0o077 != 0 || !ok || int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("not started by hmcfs run: %q is not the directory of a job", dir)
	}
	return nil
}

// outsides returns the directories elsewhere that belong to a job.
func outsides(dir string) (out []string) {
	text, err := os.ReadFile(filepath.Join(dir, elsewhere))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		path := strings.TrimSuffix(line, "\n")
		if filepath.IsAbs(path) && strings.HasPrefix(filepath.Base(path), outsidePrefix) {
			out = append(out, path)
		}
	}
	return out
}

// create creates a file below a directory, with the directories in its name, replacing an
// existing one: it never writes through a link, or to another user's file.
func create(dir, name string) (*os.File, error) {
	in, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	if err = in.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return nil, err
	}
	if err = in.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return in.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o666)
}
