package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

func (a keyVerbs) msetVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mset [--device DEVICE] [--json] KEY=FILE...",
		Short: "Set keys on files, which can then be read any number of times",
		Long: "A FILE in the mount gets the key: keys/KEY points to it, and no bytes move. FILE may be one tensor\n" +
			"of a file, M.safetensors.tensors/NAME.npy. Any other FILE is first copied to DEVICE/KEY; the\n" +
			"original stays. A file has one key, and a key one object; setting a key again on the same file\n" +
			"succeeds.",
		Annotations: withTopic(topicPairs),
		Example: "  hmcfs mset w0=/mnt/hmc/cuda0/w0.npy w1=/mnt/hmc/cuda0/w1.npy\n" +
			"  hmcfs mset --device cuda0 vocab=./vocab.bin",
		Args: arguments(1, -1, "at least one KEY=FILE"),
	}
	f := addKeyFlags(cmd)
	device := cmd.Flags().String("device", "host", "Device to which files from outside the mount are copied.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		return a.mset(ctx, args, *device, f)
	})
}

func (a keyVerbs) mset(ctx context.Context, args []string, device string, f *keyFlags) error {
	pairs, err := keyArgs(args, a.Stdin, pathsAlways)
	if err != nil {
		return err
	}
	m, err := a.mountFor(f.mount, pathsOf(pairs)...)
	if err != nil {
		return err
	}
	if m.IsServed() || slices.ContainsFunc(pairs, func(p keyPath) bool { return isHMC(p.path) }) {
		return a.msetThrough(ctx, m, device, pairs, f)
	}
	dir, err := deviceDir(m, device)
	if err != nil {
		return err
	}
	r := a.newKeyReport("mset", pairs, namedLine)
	for i, p := range pairs {
		if ctx.Err() != nil {
			break
		}
		r.settle(i, a.reason(ctx, m, p.key, false, msetOne(ctx, m, dir, p, r, i)))
	}
	return r.finish(ctx, *f.asJSON, nil)
}

// msetThrough is mset through a session.
func (a keyVerbs) msetThrough(ctx context.Context, m place.Mount, device string, pairs []keyPath, f *keyFlags) error {
	t := &trees{app: a.app, mount: m.MountPoint, sessions: map[string]*sessionTree{}}
	defer t.close()
	r := a.newKeyReport("mset", pairs, namedLine)
	for i, p := range pairs {
		if ctx.Err() != nil {
			break
		}
		r.settle(i, t.setKey(ctx, device, p, &r.rows[i]))
	}
	return r.finish(ctx, *f.asJSON, nil)
}

// setKey gives a file its key. A file from outside the daemon is copied into the directory of a
// device first.
func (t *trees) setKey(ctx context.Context, device string, p keyPath, row *keyRow) error {
	text := p.path
	_, inside := mountOfPath(text)
	if inside = inside || isHMC(text); !inside {
		text = hmcPrefix + device + "/" + p.key
		o := copier.Options{New: true}
		if err := t.throughSession(ctx, []string{p.path, text}, &o); err != nil {
			return err
		}
		sum, err := copier.Copy(ctx, []string{p.path}, text, o)
		if err != nil {
			return err
		}
		row.Path, row.Bytes, row.Way, row.Seconds = text, sum.Bytes, sum.Files[0].Path, sum.Seconds
	}
	s, name, err := t.find(ctx, text)
	if err != nil {
		return err
	}
	err = named(text, s.SetAttribute(name, keyXattr, []byte(p.key)))
	if errors.Is(err, fs.ErrExist) {
		err = hinted(fmt.Errorf("key %s names another object: %w", p.key, hetero.ErrExist), "hmcfs del removes the key from it")
	}
	if err != nil && !inside {
		_ = s.Remove(name) // it is only a copy
	}
	return err
}

func msetOne(ctx context.Context, m place.Mount, dir string, p keyPath, r *keyReport, i int) error {
	file, err := filepath.EvalSymlinks(p.path)
	if err != nil {
		return err
	}
	if isOn(m, file) {
		return nameFile(m, file, p.key)
	}
	// A key that is taken, or may be, is reported before anything is copied for it.
	if _, err = os.Lstat(keyFile(m, p.key)); err == nil {
		return hinted(fmt.Errorf("%s: %w", keyFile(m, p.key), hetero.ErrExist), "hmcfs del removes it")
	}
	if unasked(err) {
		return err
	}
	target := filepath.Join(dir, p.key)
	begun := time.Now()
	copied, err := copyIn(ctx, p.path, target, r)
	if errors.Is(err, fs.ErrExist) {
		return hinted(fmt.Errorf("%s exists already: %w", target, fs.ErrExist), "set the key on that file, or remove it")
	}
	if err != nil {
		return err
	}
	row := &r.rows[i]
	row.Path, row.Bytes, row.Way, row.Seconds = target, copied.Bytes, copied.Path, time.Since(begun).Seconds()
	if err = nameFile(m, target, p.key); err != nil {
		_ = os.Remove(target) // it is only a copy
	}
	return err
}

func nameFile(m place.Mount, file, key string) error {
	if has := xattr(file, keyXattr); has != "" && has != key {
		return hinted(&kindError{fmt.Sprintf("%s already has the key %q, and a file has only one", file, has), hetero.ErrInconsistent},
			"remove that key: hmcfs del "+quoted(has))
	}
	err := unix.Setxattr(file, keyXattr, []byte(key), 0)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EEXIST):
		return hinted(fmt.Errorf("%s names another object: %w", keyFile(m, key), hetero.ErrExist), "hmcfs del removes the key from it")
	}
	return &fs.PathError{Op: "set the key of", Path: file, Err: err}
}

// quoted quotes a key for a shell.
func quoted(key string) string { return "-- '" + key + "'" }
