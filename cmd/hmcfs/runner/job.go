package runner

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Names in a job's directory.
const (
	secretFile  = "secret"
	windowsDir  = "windows"
	buffersDir  = "buffers"
	contextsDir = "contexts"
	barrierSock = "barrier.sock"
)

// job is the state of a job on one host, other than its ranks.
type job struct {
	*brief

	plan *Plan
	// addressBook holds the addresses of all ranks; nil if there is one host.
	addressBook []string
	dir         string
	// outside is the directory of windows and buffers that are files; empty if they are
	// anonymous.
	outside string
	// windows are those of this host's ranks.
	windows []*os.File
	// buffers holds the buffers of each rank here that are in no window, by name.
	buffers []map[string]*os.File
}

// newJob creates the directory and the memory of a host's part of a job. On failure it
// removes them.
func newJob(p *Plan, b *brief, all []string) (*job, error) {
	j := &job{brief: b, plan: p, addressBook: all}
	if err := j.make(); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return j, nil
}

// identify generates the id and the secret of a job.
func identify() (id, secret string) {
	var p [24]byte
	_, _ = rand.Read(p[:]) // it never fails
	return hex.EncodeToString(p[:6]), hex.EncodeToString(p[6:])
}

func (j *job) make() error {
	// Other processes of this user open the runner's memory through its descriptors.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("share memory with the ranks: %w", err)
	}
	dir, err := os.MkdirTemp(j.plan.TempDir, jobPrefix)
	if err != nil {
		return fmt.Errorf("create the job's directory: %w; %w, with XDG_RUNTIME_DIR or TMPDIR", err, ErrPlace)
	}
	j.dir = dir
	for _, name := range []string{windowsDir, buffersDir, contextsDir} {
		if err = os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	if err = os.WriteFile(filepath.Join(dir, secretFile), []byte(j.Secret+"\n"), 0o600); err != nil {
		return err
	}
	if j.plan.Dir != "" {
		if err = j.goOutside(); err != nil {
			return err
		}
	}
	for rank := j.First; rank < j.First+j.Count; rank++ {
		if err = j.makeRank(rank); err != nil {
			return fmt.Errorf("memory of rank %d: %w", rank, err)
		}
	}
	return nil
}

// goOutside creates the directory of windows and buffers, and registers it for removal with
// the job.
func (j *job) goOutside() error {
	dir, err := filepath.Abs(j.plan.Dir)
	if err != nil {
		return err
	}
	name := outsidePrefix + j.Job
	if j.Hosts > 1 {
		name += fmt.Sprintf(".%d", j.Host) // the hosts may share the directory
	}
	dir = filepath.Join(dir, name)
	if err = os.WriteFile(filepath.Join(j.dir, elsewhere), []byte(dir+"\n"), 0o600); err != nil {
		return err
	}
	if err = os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("create windows: %w; %w", err, ErrPlace)
	}
	j.outside = dir
	return nil
}

// makeRank creates the window, the buffers and the context of a rank.
func (j *job) makeRank(rank int) error {
	window, err := j.makeFile(fmt.Sprintf("window.%d", rank), j.windowPath(rank), int64(j.plan.Window))
	if err != nil {
		return err
	}
	j.windows = append(j.windows, window)
	own := map[string]*os.File{}
	j.buffers = append(j.buffers, own)
	if err = os.Mkdir(filepath.Join(j.dir, buffersDir, fmt.Sprint(rank)), 0o700); err != nil {
		return err
	}
	for i := range j.plan.config.Buffers {
		b := &j.plan.config.Buffers[i]
		if b.inWindow() {
			continue
		}
		f, err := j.makeFile(fmt.Sprintf("%s.%d", b.Name, rank), j.bufferPath(rank, b.Name), int64(b.size()))
		if err != nil {
			return fmt.Errorf("buffer %q: %w", b.Name, err)
		}
		own[b.Name] = f
	}
	return os.WriteFile(j.contextPath(rank), j.context(rank), 0o400)
}

// makeFile creates zeroed memory, accessible to ranks at a path.
func (j *job) makeFile(name, path string, size int64) (*os.File, error) {
	if j.outside != "" {
		real := filepath.Join(j.outside, name)
		f, err := os.OpenFile(real, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		return f, errors.Join(f.Truncate(size), os.Symlink(real, path))
	}
	fd, err := unix.MemfdCreate("hmcfs "+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("anonymous memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err = f.Truncate(size); err != nil {
		return f, err
	}
	// The size of memory that others have mapped can't change.
	if _, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return f, fmt.Errorf("seal memory: %w", err)
	}
	return f, os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), path)
}

func (j *job) windowPath(rank int) string { return filepath.Join(j.dir, windowsDir, fmt.Sprint(rank)) }

func (j *job) contextPath(rank int) string {
	return filepath.Join(j.dir, contextsDir, fmt.Sprint(rank))
}

func (j *job) bufferPath(rank int, name string) string {
	return filepath.Join(j.dir, buffersDir, fmt.Sprint(rank), name)
}

// spot is the location of a buffer of a rank.
type spot struct {
	path string
	file *os.File
	off  uint64
	size uint64
}

// spot returns the location of a buffer of a rank.
func (j *job) spot(rank int, b *Buffer) spot {
	if b.inWindow() {
		return spot{path: j.windowPath(rank), file: j.windows[rank-j.First], off: b.off, size: b.size()}
	}
	return spot{path: j.bufferPath(rank, b.Name), file: j.buffers[rank-j.First][b.Name], size: b.size()}
}

// addresses returns the addresses of all ranks, as used by the ranks of this host: sockets
// for each other, and the network for ranks of other hosts. With --transport tcp, several
// hosts use the network only.
func (j *job) addresses() ([]string, error) {
	out := make([]string, j.plan.Ranks)
	for r := range out {
		here := r >= j.First && r < j.First+j.Count
		if j.addressBook != nil && (!here || j.plan.Transport == "tcp") {
			out[r] = tcpAddress(j.addressBook[r])
			continue
		}
		path, err := control.SocketPath(j.dir, wire.Rank(r))
		if err != nil {
			return nil, err
		}
		out[r] = control.Address{Network: control.Unix, Addr: path}.String()
	}
	return out, nil
}

// environment returns the variables of a rank.
func (j *job) environment(rank int) ([]string, error) {
	book, err := j.addresses()
	if err != nil {
		return nil, err
	}
	env := []string{
		fmt.Sprintf("HMCFS_RANK=%d", rank), fmt.Sprintf("HMCFS_WORLD=%d", j.plan.Ranks), fmt.Sprintf("HMCFS_ROOT=%d", j.plan.config.Root),
		fmt.Sprintf("HMCFS_LOCAL_RANK=%d", rank-j.First), fmt.Sprintf("HMCFS_LOCAL_WORLD=%d", j.Count),
		"HMCFS_JOB=" + j.Job, "HMCFS_JOB_DIR=" + j.dir,
		"HMCFS_SECRET_FILE=" + filepath.Join(j.dir, secretFile),
		"HMCFS_BOOK=" + strings.Join(book, ","),
		"HMCFS_WINDOWS=" + filepath.Join(j.dir, windowsDir), "HMCFS_WINDOW=" + j.windowPath(rank),
		fmt.Sprintf("HMCFS_WINDOW_SIZE=%d", uint64(j.plan.Window)), fmt.Sprintf("HMCFS_WINDOW_SYNC=%d", j.plan.config.WinSyncPrefix),
		fmt.Sprintf("HMCFS_WINDOW_BASE=%#x", uint64(windowBase)), fmt.Sprintf("HMCFS_WINDOW_STRIDE=%#x", j.plan.stride()),
		"HMCFS_CONTEXT=" + j.contextPath(rank),
		"HMCFS_BARRIER=" + filepath.Join(j.dir, barrierSock),
	}
	// A rank that needs this program need not search for it.
	if binary, err := filepath.EvalSymlinks(j.plan.Executable); err == nil {
		env = append(env, "HMCFS_BINARY="+binary)
	}
	if j.addressBook != nil {
		env = append(env, fmt.Sprintf("HMCFS_HOST=%s.%d", j.Job, j.Host))
		if book[rank] != tcpAddress(j.addressBook[rank]) {
			env = append(env, "HMCFS_LISTEN="+tcpAddress(j.addressBook[rank]))
		}
	}
	if j.plan.Transport != "" {
		env = append(env, "HMCFS_TRANSPORT="+j.plan.Transport)
	}
	for i := range j.plan.config.Buffers {
		b := &j.plan.config.Buffers[i]
		at := j.spot(rank, b)
		name := "HMCFS_BUFFER_" + strings.ToUpper(b.Name)
		env = append(env, name+"="+at.path, fmt.Sprintf("%s_OFFSET=%d", name, at.off), fmt.Sprintf("%s_BYTES=%d", name, at.size),
			fmt.Sprintf("%s_COUNT=%d", name, b.Count), fmt.Sprintf("%s_DTYPE=%s", name, b.kind))
	}
	for _, name := range sortedKeys(j.plan.config.Env) {
		env = append(env, name+"="+j.plan.config.Env[name])
	}
	return env, nil
}

// args returns the arguments that the config adds to the program's own.
func (j *job) args(rank int) []string {
	out := make([]string, 0, len(j.plan.config.Args))
	for _, token := range j.plan.config.Args {
		switch token {
		case argRanks:
			out = append(out, fmt.Sprint(j.plan.Ranks))
		case argRoot:
			out = append(out, fmt.Sprint(j.plan.config.Root))
		case argContext:
			out = append(out, j.contextPath(rank))
		default:
			at := j.spot(rank, j.plan.buffer(token))
			out = append(out, fmt.Sprintf("%s@%d+%d", at.path, at.off, at.size))
		}
	}
	return out
}

// close frees all that newJob has created.
func (j *job) close() error {
	adminapi.CloseAll(j.windows) // no data is lost
	for _, own := range j.buffers {
		adminapi.CloseAll(slices.Collect(maps.Values(own)))
	}
	var errs []error
	for _, dir := range []string{j.outside, j.dir} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}
