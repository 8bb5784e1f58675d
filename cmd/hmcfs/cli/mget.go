package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

type mgetFlags struct {
	*keyFlags

	dir, offset, length string
	timeout             seconds
	replica             bool
}

func (a keyVerbs) mgetVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mget [--offset SIZE] [--length SIZE] [--timeout TIME] [--dir DIR | --replica] [--json] KEY[=PATH]...",
		Short: "Copy objects by key",
		Long: "Copy the bytes of each key to PATH: from device to device if PATH is in the mount. If PATH is -\n" +
			"or missing, they go to standard output. An existing PATH is replaced, as by cp(1). Keys stay, and\n" +
			"can be read again.\n\n" +
			"With --replica nothing is written: each KEY is read into memory of this process, which serves as\n" +
			"another source for memory that a program has set (DevMSet), until ^C. When that program ends, the\n" +
			"key is read from here. Objects in the mount's own memory need no replica.",
		Annotations: withTopic(topicPairs),
		Example: "  hmcfs mget w0=/mnt/hmc/cuda1/w0\n" +
			"  hmcfs mget --offset 4KiB --length 512 w0 | od -t f4\n" +
			"  hmcfs mget --timeout 30s --dir ./out w0 w1 w2\n" +
			"  hmcfs mget --replica w0 w1 &",
		Args: arguments(1, -1, "at least one KEY"),
	}
	f := &mgetFlags{keyFlags: addKeyFlags(cmd)}
	cmd.Flags().StringVar(&f.dir, "dir", "", "Directory in which a file KEY is created for each KEY; the arguments are then keys without paths.")
	cmd.Flags().StringVar(&f.offset, "offset", wholeOffset, "Offset in each object at which to begin.")
	cmd.Flags().StringVar(&f.length, "length", "", "How much of each object to copy. Default: all after the offset.")
	cmd.Flags().BoolVar(&f.replica, "replica", false, "Hold replicas of the keys until ^C, and write nothing.")
	cmd.Flags().Var(&f.timeout, "timeout", "How long to wait for keys that do not exist. Default: not at all.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		return a.mget(ctx, args, f)
	})
}

func (a keyVerbs) mget(ctx context.Context, args []string, f *mgetFlags) error {
	if f.replica {
		return a.mgetReplicas(ctx, args, f)
	}
	pairs, toOutput, err := a.aimed(args, f.dir, pathsIfAny)
	if err == nil {
		err = unmixed(toOutput, *f.asJSON)
	}
	if err != nil {
		return err
	}
	g := &getting{a: a, r: a.newKeyReport("mget", pairs, movedLine)}
	if g.opts, err = f.part(); err != nil {
		return usage(err)
	}
	if err = f.timeout.check(); err != nil {
		return err
	}
	if g.m, err = a.mountFor(f.mount, pathsOf(pairs)...); err != nil {
		return err
	}
	if g.files, g.trees, err = a.keysOf(ctx, g.m, keysDir); err != nil {
		return err
	}
	defer g.trees.close()
	if toOutput {
		g.r.line = nil
	}
	g.opts.Started, g.opts.Moved = g.r.bar.grow, g.r.bar.add
	if f.timeout.Duration == 0 {
		err = g.now(ctx)
	} else {
		err = g.wait(ctx, f.timeout.Duration)
	}
	return g.r.finish(ctx, *f.asJSON, err)
}

func (a keyVerbs) mgetReplicas(ctx context.Context, args []string, f *mgetFlags) error {
	if f.dir != "" || f.offset != wholeOffset || f.length != "" {
		return usage(errors.New("--replica holds whole objects and writes nothing; it cannot be combined with --dir, --offset or --length"))
	}
	pairs, err := keyArgs(args, a.Stdin, keysAlone)
	if err != nil {
		return err
	}
	if err = f.timeout.check(); err != nil {
		return err
	}
	return a.replicas(ctx, pairs, f)
}

// wholeOffset is the default of --offset.
const wholeOffset = "0"

// part returns the range of --offset and --length.
func (f *mgetFlags) part() (copier.Options, error) {
	off, err := devices.ParseSize(f.offset)
	if err != nil {
		return copier.Options{}, fmt.Errorf("--offset: %w", err)
	}
	o := copier.Options{Off: int64(off)}
	if f.length == "" {
		return o, nil
	}
	n, err := devices.ParseSize(f.length)
	if err == nil && n == 0 {
		err = errors.New("use 1 byte or more, or omit it to copy everything")
	}
	if err != nil {
		return copier.Options{}, fmt.Errorf("--length: %w", err)
	}
	o.Len = int64(n)
	return o, nil
}

type getting struct {
	a    keyVerbs
	m    place.Mount
	r    *keyReport
	opts copier.Options

	files keyFiles
	// trees are the sessions by which files are reached; nil for those of a mount.
	trees *trees
}

// wait copies keys as they appear. It needs a session with the daemon.
func (g *getting) wait(ctx context.Context, timeout time.Duration) error {
	c, err := g.a.openKeys(ctx, g.m)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // it holds nothing
	v := &arrivals{c: c, take: g.take, fail: g.r.fail}
	return v.each(ctx, g.r.keys, timeout)
}

// maxLooks bounds the keys that are looked up concurrently: those of other nodes take a
// round trip each.
const maxLooks = 16

// now copies the keys that exist.
func (g *getting) now(ctx context.Context) error {
	errs := make([]error, len(g.r.keys))
	_ = objects.Parallel(ctx, len(errs), maxLooks, func(ctx context.Context, i int) error {
		key := g.r.keys[i]
		errs[i] = g.a.reason(ctx, g.m, key, false, g.there(key))
		return nil // each key has its own error
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var there []int
	for i, err := range errs {
		if err == nil {
			there = append(there, i)
		} else {
			g.r.fail(i, err)
		}
	}
	g.take(ctx, there)
	return ctx.Err()
}

// there returns an error unless a key names an object whose bytes exist.
func (g *getting) there(key string) error {
	_, err := g.files.stat(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return g.absent(key)
	case err == nil && g.files.attribute(key, stateXattr) == "lost":
		return hetero.ErrLost
	}
	return err
}

// absent explains why the file of a key can't be found.
func (g *getting) absent(key string) error {
	to, err := g.files.link(key)
	if err != nil || !strings.HasPrefix(to, "../nodes/") || !strings.Contains(to, tensors.ViewSuffix+"/") {
		return hetero.ErrNotFound
	}
	return hinted(fmt.Errorf("it names a tensor of a file on another node: %w", hetero.ErrUnsupported), "hmcfs h2d copies it into a file")
}

// tensorHeader returns the length of the header before the bytes of a tensor, if the file of a
// key is one.
func tensorHeader(files keyFiles, key string) (int64, error) {
	to, err := files.link(key)
	// A view has no attribute for its memory, which is the file's.
	if err != nil || !strings.Contains(to, tensors.ViewSuffix+"/") || files.attribute(key, residentXattr) != "" {
		return 0, nil //nolint:nilerr // opening the file reports the reason
	}
	f, err := files.open(key)
	if err != nil {
		return 0, err
	}
	st, err := f.Stat()
	var t tensors.Tensor
	if err == nil {
		t, _, err = tensors.ParseSingle("tensor.npy", f, uint64(st.Size()))
	}
	return int64(t.Off), errors.Join(err, f.Close())
}

func (g *getting) take(ctx context.Context, places []int) (again []int) {
	for _, place := range places {
		if ctx.Err() != nil {
			return append(again, place)
		}
		err := g.get(ctx, place)
		if ctx.Err() != nil && err != nil {
			return append(again, place)
		}
		g.r.settle(place, err)
	}
	return again
}

// gone interprets the error of a copy: a name that did not exist when it was opened means
// that the key was removed, unless the mount disappeared, or the key exists again.
func (g *getting) gone(key string, err error) error {
	failed, is := errors.AsType[*fs.PathError](err)
	if !is || failed.Path != g.files.path(key) || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, failure := g.files.stat(key)
	switch {
	case errors.Is(failure, fs.ErrNotExist):
		return err
	case failure != nil:
		return failure
	}
	return fmt.Errorf("it was missing for a moment: %w", hetero.ErrBusy)
}

func (g *getting) get(ctx context.Context, place int) (err error) {
	row := &g.r.rows[place]
	st, err := g.files.stat(row.Key)
	if errors.Is(err, fs.ErrNotExist) {
		return g.absent(row.Key) // it was removed just now
	}
	if err != nil {
		return err
	}
	defer func() { err = g.gone(row.Key, err) }()
	head, err := tensorHeader(g.files, row.Key)
	if err != nil {
		return err
	}
	opts, size := g.opts, st.Size()-head
	if opts.Off > size || opts.Len > size-opts.Off {
		return hinted(fmt.Errorf("%d bytes at offset %d of an object of size %d: %w", opts.Len, opts.Off, size, hetero.ErrShape),
			"hmcfs ls-keys shows the sizes")
	}
	opts.Off += head
	begun := time.Now()
	defer func() { row.Seconds = time.Since(begun).Seconds() }()
	from := g.files.path(row.Key)
	if row.Path == standardStream {
		g.r.bar.grow(st.Size() - opts.Off)
		row.Bytes, err = g.pour(ctx, row.Key, opts)
		return err
	}
	if g.trees != nil {
		if opts.Find, err = g.trees.ofCopy(ctx, []string{from, row.Path}); err != nil {
			return err
		}
	}
	sum, err := copier.Copy(ctx, []string{from}, row.Path, opts)
	if len(sum.Files) == 1 {
		row.Bytes, row.Way = sum.Files[0].Bytes, sum.Files[0].Path
	}
	return err
}

// pour writes the bytes of a key to standard output.
func (g *getting) pour(ctx context.Context, key string, o copier.Options) (n int64, err error) {
	f, err := g.files.open(key)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return copier.Drain(ctx, g.a.Stdout, copier.Source{Name: g.files.path(key), ReadAt: f.ReadAt, Size: st.Size()}, o)
}
