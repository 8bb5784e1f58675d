package runner

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The names in a job's directory.
const (
	secretFile  = "secret"
	windowsDir  = "windows"
	buffersDir  = "buffers"
	contextsDir = "contexts"
	barrierSock = "barrier.sock"
)

// job is what a job has besides its ranks.
type job struct {
	plan *Plan
	id   string
	dir  string
	// outside is the directory of the windows and buffers where they have
	// names; empty where they are anonymous.
	outside string
	layout  layout
	windows []*os.File
	// buffers are those of each rank that are in no window, by name.
	buffers []map[string]*os.File
}

// newJob makes the directory and the memory of a job. What it has made is gone
// when it fails.
func newJob(p *Plan) (*job, error) {
	j := &job{plan: p, layout: p.layout()}
	if err := j.make(); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return j, nil
}

func (j *job) make() error {
	// Other processes of this user open the runner's memory by its descriptors.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("lend memory to the ranks: %w", err)
	}
	var p [24]byte
	_, _ = rand.Read(p[:]) // it never fails
	j.id = hex.EncodeToString(p[:6])
	dir, err := os.MkdirTemp(j.plan.TempDir, jobPrefix)
	if err != nil {
		return fmt.Errorf("make the job's directory: %w; %w, by XDG_RUNTIME_DIR or TMPDIR", err, ErrPlace)
	}
	j.dir = dir
	for _, name := range []string{windowsDir, buffersDir, contextsDir} {
		if err = os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	if err = os.WriteFile(filepath.Join(dir, secretFile), []byte(hex.EncodeToString(p[6:])+"\n"), 0o600); err != nil {
		return err
	}
	if j.plan.Dir != "" {
		if err = j.goOutside(); err != nil {
			return err
		}
	}
	for rank := range j.plan.Ranks {
		if err = j.makeRank(rank); err != nil {
			return fmt.Errorf("memory of rank %d: %w", rank, err)
		}
	}
	return nil
}

// goOutside makes the directory of windows and buffers, and has it removed with
// the job.
func (j *job) goOutside() error {
	dir, err := filepath.Abs(j.plan.Dir)
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, outsidePrefix+j.id)
	if err = os.WriteFile(filepath.Join(j.dir, elsewhere), []byte(dir+"\n"), 0o600); err != nil {
		return err
	}
	if err = os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make windows: %w; %w", err, ErrPlace)
	}
	j.outside = dir
	return nil
}

// makeRank makes the window, the buffers and the context of a rank.
func (j *job) makeRank(rank int) error {
	window, err := j.makeFile(fmt.Sprintf("window.%d", rank), j.windowPath(rank), int64(j.layout.window))
	if err != nil {
		return err
	}
	j.windows = append(j.windows, window)
	own := map[string]*os.File{}
	j.buffers = append(j.buffers, own)
	if err = os.Mkdir(filepath.Join(j.dir, buffersDir, fmt.Sprint(rank)), 0o700); err != nil {
		return err
	}
	for i := range j.plan.Buffers {
		b := &j.plan.Buffers[i]
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

// makeFile makes zeroed memory of a size, which ranks find at a path.
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
	// Nobody can cut what others have mapped.
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

// place is where a buffer of a rank is.
type spot struct {
	path string
	file *os.File
	off  uint64
	size uint64
}

// spot is where a buffer of a rank is.
func (j *job) spot(rank int, b *Buffer) spot {
	if b.inWindow() {
		return spot{path: j.windowPath(rank), file: j.windows[rank], off: j.layout.offsets[b.Name], size: b.size()}
	}
	return spot{path: j.bufferPath(rank, b.Name), file: j.buffers[rank][b.Name], size: b.size()}
}

// environment is what a rank is told.
func (j *job) environment(rank int) ([]string, error) {
	book := make([]string, j.plan.Ranks)
	for r := range book {
		path, err := control.SocketPath(j.dir, wire.Rank(r))
		if err != nil {
			return nil, err
		}
		book[r] = control.Address{Network: control.Unix, Addr: path}.String()
	}
	env := []string{
		fmt.Sprintf("HMCFS_RANK=%d", rank), fmt.Sprintf("HMCFS_WORLD=%d", j.plan.Ranks), fmt.Sprintf("HMCFS_ROOT=%d", j.plan.Root),
		fmt.Sprintf("HMCFS_LOCAL_RANK=%d", rank), fmt.Sprintf("HMCFS_LOCAL_WORLD=%d", j.plan.Ranks),
		"HMCFS_JOB=" + j.id, "HMCFS_JOB_DIR=" + j.dir,
		"HMCFS_SECRET_FILE=" + filepath.Join(j.dir, secretFile),
		"HMCFS_BOOK=" + strings.Join(book, ","),
		"HMCFS_WINDOWS=" + filepath.Join(j.dir, windowsDir), "HMCFS_WINDOW=" + j.windowPath(rank),
		fmt.Sprintf("HMCFS_WINDOW_SIZE=%d", uint64(j.layout.window)), fmt.Sprintf("HMCFS_WINDOW_SYNC=%d", j.plan.WinSyncPrefix),
		fmt.Sprintf("HMCFS_WINDOW_BASE=%#x", uint64(windowBase)), fmt.Sprintf("HMCFS_WINDOW_STRIDE=%#x", j.layout.stride()),
		"HMCFS_CONTEXT=" + j.contextPath(rank),
		"HMCFS_BARRIER=" + filepath.Join(j.dir, barrierSock),
	}
	if j.plan.Transport != "" {
		env = append(env, "HMCFS_TRANSPORT="+j.plan.Transport)
	}
	for i := range j.plan.Buffers {
		b := &j.plan.Buffers[i]
		at := j.spot(rank, b)
		name := "HMCFS_BUFFER_" + strings.ToUpper(b.Name)
		env = append(env, name+"="+at.path, fmt.Sprintf("%s_OFFSET=%d", name, at.off), fmt.Sprintf("%s_BYTES=%d", name, at.size),
			fmt.Sprintf("%s_COUNT=%d", name, b.Count), fmt.Sprintf("%s_DTYPE=%s", name, b.kind))
	}
	for _, name := range sortedKeys(j.plan.Env) {
		env = append(env, name+"="+j.plan.Env[name])
	}
	return env, nil
}

// args are the words behind the program's own that the config asks for.
func (j *job) args(rank int) []string {
	out := make([]string, 0, len(j.plan.Args))
	for _, token := range j.plan.Args {
		switch token {
		case argRanks:
			out = append(out, fmt.Sprint(j.plan.Ranks))
		case argRoot:
			out = append(out, fmt.Sprint(j.plan.Root))
		case argContext:
			out = append(out, j.contextPath(rank))
		default:
			at := j.spot(rank, j.plan.buffer(token))
			out = append(out, fmt.Sprintf("%s@%d+%d", at.path, at.off, at.size))
		}
	}
	return out
}

// close frees all that newJob has made.
func (j *job) close() error {
	for _, f := range j.windows {
		_ = f.Close() // nothing is lost with it
	}
	for _, own := range j.buffers {
		for _, f := range own {
			_ = f.Close() // nor with these
		}
	}
	var errs []error
	for _, dir := range []string{j.outside, j.dir} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}
