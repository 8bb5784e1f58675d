package copier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
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

// job is one file or directory to copy.
type job struct {
	source, target spot
	info           fs.FileInfo
}

// Copy copies every source to the target, or into it if it is a directory. A file that
// fails does not stop the others; its error is in the summary, and the returned error is
// the first one.
func Copy(ctx context.Context, sources []string, target string, o Options) (Summary, error) {
	o.Buffer = cmp.Or(o.Buffer, defaultBuffer)
	c := &copier{opts: o, byKernel: map[uint64]bool{}}
	roots, err := c.plan(sources, target)
	if err != nil {
		return Summary{}, err
	}
	if o.Started != nil {
		o.Started(c.total(roots))
	}
	begun := time.Now()
	for _, r := range roots {
		c.tree(ctx, r)
	}
	s := &c.summary
	s.Seconds = time.Since(begun).Seconds()
	if s.Seconds > 0 {
		s.BytesPerSecond = float64(s.Bytes) / s.Seconds
	}
	return c.summary, c.first
}

type copier struct {
	opts    Options
	summary Summary
	first   error
	// byKernel caches, by device number, whether a mount has passthrough.
	byKernel map[uint64]bool
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
		from := c.at(s)
		info, err := from.stat()
		if err != nil {
			return nil, err
		}
		j := job{source: from, target: to, info: info}
		if into {
			j.target = to.in(from.base())
		}
		if err := c.check(j); err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
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

func (c *copier) total(roots []job) int64 {
	var sum int64
	for _, r := range roots {
		if !r.info.IsDir() {
			p := c.opts.part(r.info.Size())
			sum += p.end - p.off
			continue
		}
		sum += below(r.source)
	}
	return sum
}

// below returns the size of all regular files in a directory, as far as it can be read.
func below(dir spot) (sum int64) {
	entries, err := dir.tree.ReadDir(dir.name)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		switch {
		case e.IsDir():
			sum += below(dir.in(e.Name()))
		case e.Type().IsRegular():
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
	}
	return sum
}

func (c *copier) ended(f File) {
	if f.Err != nil {
		f.Fault = f.Err.Error()
		c.summary.Failed++
		if c.first == nil {
			c.first = f.Err
		}
	}
	c.summary.Bytes += f.Bytes
	c.summary.Files = append(c.summary.Files, f)
	if c.opts.Ended != nil {
		c.opts.Ended(f)
	}
}

func (c *copier) moved(n int64) {
	if c.opts.Moved != nil {
		c.opts.Moved(n)
	}
}
