package copier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// Options control a copy.
type Options struct {
	// Recursive copies directories with their contents.
	Recursive bool
	// Force removes a target that can't be opened, and tries again.
	Force bool
	// New refuses an existing target.
	New bool
	// Preserve keeps owner and times, and the set-ID bits, besides the mode. Archive keeps links and
	// extended attributes too, and does not follow links that are named as sources.
	Preserve, Archive bool
	// Routes asks for the path of every file; else only some of many small files have theirs.
	Routes bool
	// Off and Len select the bytes of each source; a Len of 0 means all bytes after Off.
	Off, Len int64
	// Find returns the tree, and the name in it, of a file that is not reached through the
	// kernel, and false for all others. Nil knows none. Equal trees are one.
	Find func(path string) (Tree, string, bool)
	// Buffer is the size of one read and write. Default 4 MiB.
	Buffer devices.Size
	// Started receives the total size of all regular files before the first is copied,
	// Moved the number of bytes moved since its last call, and Ended each finished file.
	// Nil is not called. They are called from one goroutine at a time.
	Started func(total int64)
	Moved   func(n int64)
	Ended   func(File)
}

// defaultBuffer is the default of Options.Buffer.
const defaultBuffer = 4 * devices.MiB

// part returns the range to copy of a file of a size.
func (o *Options) part(size int64) segment {
	p := segment{min(o.Off, size), size}
	if o.Len > 0 {
		p.end = min(size, p.off+o.Len)
	}
	return p
}

// File is the outcome for one file.
type File struct {
	Source string `json:"source"`
	Target string `json:"target"`
	Bytes  int64  `json:"bytes"`
	// Seconds is the duration of the copy.
	Seconds float64 `json:"seconds"`
	// Path is the path that the bytes took, as hmcfs reports it; empty if neither file is
	// on a mount.
	Path string `json:"path,omitempty"`
	// Ranged is set if the kernel copied, with copy_file_range.
	Ranged bool `json:"copy_file_range"`
	// Fault is the error's text.
	Fault string `json:"error,omitempty"`
	// Err is the error.
	Err error `json:"-"`
}

// Summary is the outcome of a whole copy.
type Summary struct {
	Files          []File  `json:"files"`
	Bytes          int64   `json:"bytes"`
	Seconds        float64 `json:"seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	// Failed counts the files that were not copied.
	Failed int `json:"failed"`
}

// UsageError means that sources and target do not fit together. Nothing has been changed.
type UsageError struct{ text string }

// Error returns the fault.
func (e *UsageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &UsageError{text: fmt.Sprintf(format, args...)}
}

// job is one file to copy.
type job struct {
	source, target spot
	info           fs.FileInfo
	// into is the device number of the target's directory; 0 if it is unknown.
	into uint64
	// route is set if the path that the bytes take is asked for.
	route bool
	// at is the index of the file in the summary.
	at int
}

// written names the file that a job writes.
type written struct {
	tree Tree
	name string
}

// workers is the number of files that are copied at a time. Two keep one processor busy: while one waits
// for the daemon, the other one prepares its next request.
const workers = 2

// Copy copies every source to the target, or into it if it is a directory. A file that
// fails does not stop the others; its error is in the summary, and the returned error is
// the first one.
func Copy(ctx context.Context, sources []string, target string, o Options) (Summary, error) {
	o.Buffer = cmp.Or(o.Buffer, defaultBuffer)
	o.Preserve = o.Preserve || o.Archive
	c := &copier{opts: o, mask: umask(), ofMount: map[uint64]bool{}, byKernel: map[uint64]bool{}, linked: map[inode]spot{}}
	begun := time.Now()
	roots, err := c.plan(sources, target)
	if err != nil {
		return Summary{}, err
	}
	if len(roots) > 1 {
		c.targets = map[written]bool{}
	}
	for _, r := range roots {
		c.gather(ctx, r)
	}
	if o.Started != nil {
		o.Started(c.total())
	}
	c.copyAll(ctx)
	c.linkAll(ctx)
	c.finishDirectories()
	s := &c.summary
	s.Seconds = time.Since(begun).Seconds()
	if s.Seconds > 0 {
		s.BytesPerSecond = float64(s.Bytes) / s.Seconds
	}
	s.Files = slices.DeleteFunc(s.Files, func(f File) bool { return f.Source == "" })
	return c.summary, c.first
}

// umask returns the process's umask, without changing it for a moment; all bits if it is unknown.
func umask() uint32 {
	text, _ := os.ReadFile("/proc/self/status") // an error is an empty text
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, "Umask:"); is {
			if n, err := strconv.ParseUint(strings.TrimSpace(value), 8, 32); err == nil {
				return uint32(n)
			}
		}
	}
	return 0o777
}

type copier struct {
	opts Options
	// mask is the process's umask: the bits of modes that new files don't get.
	mask uint32
	// jobs are the files to copy, and made the directories that were created, parents first.
	jobs []job
	made []job
	// targets has the files to write, if two of several sources may have the same one; else it is nil.
	targets map[written]bool
	// linked has the target of each file with several names that was copied first, for Archive.
	linked map[inode]spot
	links  []link

	// mu guards the fields below, and calls of the functions in opts.
	mu      sync.Mutex
	summary Summary
	first   error
	// ofMount caches, by device number, whether a file system is a mount of hmcfs, and byKernel
	// whether that has passthrough.
	ofMount, byKernel map[uint64]bool
}

// copyAll copies the files, several at a time.
func (c *copier) copyAll(ctx context.Context) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(workers, len(c.jobs)) {
		all.Go(func() {
			w := &worker{copier: c}
			for n := int(next.Add(1)) - 1; n < len(c.jobs); n = int(next.Add(1)) - 1 {
				c.ended(c.jobs[n].at, w.copy(ctx, c.jobs[n]))
			}
		})
	}
	all.Wait()
}

// worker copies one file at a time.
type worker struct {
	*copier

	// buffer is kept for the next small file.
	buffer []byte
}

func (w *worker) copy(ctx context.Context, j job) File {
	if ctx.Err() != nil {
		return File{Source: j.source.text, Target: j.target.text, Err: &interruptedError{j.source.text, "it was not started"}}
	}
	return w.file(ctx, j)
}

// plan pairs sources with targets and checks for errors before anything is changed.
func (c *copier) plan(sources []string, target string) ([]job, error) {
	into, to := false, c.at(target)
	if st, err := to.stat(); err == nil {
		into = st.IsDir()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	} else if strings.HasSuffix(target, "/") && !c.opts.Recursive {
		return nil, usagef("%s does not exist; create the directory first: mkdir %s", target, target)
	}
	if len(sources) > 1 && !into {
		return nil, usagef("%s is not a directory; several sources need one", target)
	}
	var jobs []job
	for _, s := range sources {
		j := job{source: c.at(s), target: to, route: true}
		if into {
			j.target = to.in(j.source.base())
		}
		var err error
		if j.info, err = c.named(j.source); err == nil {
			err = c.check(j)
		}
		switch {
		case err == nil:
			j.into = deviceOf(j.target.up())
			jobs = append(jobs, j)
		case len(sources) == 1:
			return nil, err
		default:
			c.failed(j, err)
		}
	}
	return jobs, nil
}

// named returns what a source that the user named is: a link is followed, except in an archive.
func (c *copier) named(s spot) (fs.FileInfo, error) {
	if c.opts.Archive {
		return s.tree.Lstat(s.name)
	}
	return s.stat()
}

func (c *copier) check(j job) error {
	source, target := j.source.text, j.target.text
	if j.info.IsDir() && !c.opts.Recursive {
		return usagef("%s is a directory; copy it with -r", source)
	}
	st, err := j.target.stat()
	switch {
	case err == nil && j.target.same(st, j.source, j.info):
		return usagef("%s and %s are the same file", source, target)
	case err == nil && st.IsDir() && !j.info.IsDir():
		return usagef("%s is a directory; %s is not", target, source)
	case err == nil && !st.IsDir() && j.info.IsDir():
		return usagef("%s is a directory; %s is not", source, target)
	}
	if j.info.IsDir() && liesIn(j.target, j.source, j.info) {
		return usagef("%s is inside %s; copying it there would never end", target, source)
	}
	return nil
}

// liesIn reports whether a file, which need not exist yet, is below a directory.
func liesIn(at, dir spot, info fs.FileInfo) bool {
	if at.isLocal() {
		abs, err := filepath.Abs(at.name)
		if err != nil {
			return false
		}
		at.name = abs
	}
	for {
		if st, err := at.stat(); err == nil && at.same(st, dir, info) {
			return true
		}
		up := filepath.Dir(at.name)
		if up == at.name {
			return false
		}
		at.name = up
	}
}

// total returns the size of all files to copy.
func (c *copier) total() (sum int64) {
	for _, j := range c.jobs {
		p := c.opts.part(j.info.Size())
		sum += p.end - p.off
	}
	return sum
}

// add gives a file its place in the summary.
func (c *copier) add() int {
	c.summary.Files = append(c.summary.Files, File{})
	return len(c.summary.Files) - 1
}

// failed reports a file that is not copied.
func (c *copier) failed(j job, err error) {
	c.ended(c.add(), File{Source: j.source.text, Target: j.target.text, Err: err})
}

func (c *copier) ended(at int, f File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Err != nil {
		f.Fault = f.Err.Error()
		c.summary.Failed++
		if c.first == nil {
			c.first = f.Err
		}
	}
	c.summary.Bytes += f.Bytes
	c.summary.Files[at] = f
	if c.opts.Ended != nil {
		c.opts.Ended(f)
	}
}

func (c *copier) moved(n int64) {
	if c.opts.Moved != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.opts.Moved(n)
	}
}
