package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// rankFiles are the files of a collective. The descriptors only identify them.
type rankFiles struct {
	names  []string
	client *client.Client
	// sources and targets are indexed by rank, nil for none. They are the same for an
	// in-place operation.
	sources, targets []*os.File
	// made are the temporary files that will become the results, by rank.
	made []string
	// files are all open files.
	files []*os.File
}

// open opens the FILEs as sources and, in place, as targets.
func (r *rankFiles) open(c fileVerb, root int) error {
	r.sources, r.targets = make([]*os.File, len(r.names)), make([]*os.File, len(r.names))
	seen := map[[2]uint64]string{}
	for i, name := range r.names {
		found, f, err := findOf(name, r.client)
		if c.kind == plan.Broadcast && i != root && errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w; a FILE that receives bytes must exist, empty or as long as the root's: create it with touch, or use --out", err)
		}
		if err != nil {
			return err
		}
		r.client = found
		r.files = append(r.files, f)
		var st unix.Stat_t
		if err = unix.Stat(name, &st); err != nil {
			return &os.PathError{Op: "stat", Path: name, Err: err}
		}
		if other, twice := seen[[2]uint64{st.Dev, st.Ino}]; twice {
			return usage(fmt.Errorf("%s and %s are the same file; each rank needs its own", other, name))
		}
		seen[[2]uint64{st.Dev, st.Ino}] = name
		if c.kind != plan.Broadcast || i == root {
			r.sources[i] = f
		}
		if c.kind == plan.Broadcast && i != root || c.kind == plan.Reduce && i == root || c.kind != plan.Broadcast && c.kind != plan.Reduce {
			r.targets[i] = f
		}
	}
	return nil
}

// spread makes the one FILE the root of additional ranks, which receive the results.
func (r *rankFiles) spread(outs []string) {
	r.names = append(r.names, outs...)
	r.sources = append(r.sources, make([]*os.File, len(outs))...)
	r.targets = append(r.targets, make([]*os.File, len(outs))...)
}

// create creates temporary files for the results, in the same directories: a result only
// becomes visible when it is complete.
func (r *rankFiles) create(outs []string, dtype string) error {
	if outs == nil {
		return nil
	}
	r.made = make([]string, len(outs))
	for i, out := range outs {
		r.targets[i] = nil
		if out == "" {
			continue
		}
		mode := os.FileMode(0o666) &^ umask()
		if before, failure := os.Stat(out); failure == nil {
			if !before.Mode().IsRegular() {
				return usage(fmt.Errorf("%s is not a regular file; name a file for the result", out))
			}
			mode = before.Mode().Perm()
		}
		dir, base := filepath.Split(out)
		dir = filepath.Join(dir, ".")
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return usage(fmt.Errorf("directory %s for a result does not exist; create it: mkdir %s", dir, dir))
		}
		made, err := os.CreateTemp(dir, "."+base+".*~")
		if err != nil {
			if pe, ok := errors.AsType[*os.PathError](err); ok {
				pe.Path = out
			}
			return err
		}
		r.made[i] = made.Name()
		r.targets[i], err = r.target(made, mode, dtype)
		if err = errors.Join(err, made.Close()); err != nil {
			return &explained{text: strings.ReplaceAll(err.Error(), made.Name(), out), err: err}
		}
	}
	return nil
}

// target prepares a file created for a result, and opens it to identify it to the daemon.
// It checks that the file was not replaced, which any user with write access to its
// directory could have done.
func (r *rankFiles) target(made *os.File, mode os.FileMode, dtype string) (*os.File, error) {
	if err := made.Chmod(mode); err != nil {
		return nil, err
	}
	// Beyond the mount's own devices there may be no attributes.
	_ = unix.Fsetxattr(int(made.Fd()), dtypeXattr, []byte(dtype), 0)
	_, f, err := findOf(made.Name(), r.client)
	if err != nil {
		return nil, err
	}
	r.files = append(r.files, f)
	ours, err := made.Stat()
	theirs, failure := f.Stat()
	if err = errors.Join(err, failure); err == nil && !os.SameFile(ours, theirs) {
		err = fmt.Errorf("%s was replaced by another process in the meantime", made.Name())
	}
	return f, err
}

func umask() os.FileMode {
	mask := unix.Umask(0)
	unix.Umask(mask)
	return os.FileMode(mask)
}

// rename renames the temporary files to the names of the results.
func (r *rankFiles) rename(outs []string) error {
	var errs []error
	for i, name := range r.made {
		if name == "" {
			continue
		}
		err := os.Rename(name, outs[i])
		if err == nil {
			r.made[i] = ""
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// close closes the files, and removes the temporary ones that did not become results.
func (r *rankFiles) close() {
	for _, f := range r.files {
		_ = f.Close() // it only named the file
	}
	for _, name := range r.made {
		if name != "" {
			_ = os.Remove(name) // the failure that led here is reported
		}
	}
}

// rankNumber matches a rank in an error.
var rankNumber = regexp.MustCompile(`rank \d+`)

// explain replaces ranks by file names in an error.
func (r *rankFiles) explain(err error) error {
	text := rankNumber.ReplaceAllStringFunc(err.Error(), func(word string) string {
		rank, aerr := strconv.Atoi(strings.TrimPrefix(word, "rank "))
		if aerr != nil || rank >= len(r.names) || r.names[rank] == "" {
			return word
		}
		return r.names[rank]
	})
	return &explained{text: text, err: err}
}

// explained is an error with another text.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() error { return e.err }
