package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

type h2dFlags struct {
	*keyFlags

	dir     string
	timeout seconds
}

func (a keyVerbs) h2dVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "h2d [--timeout TIME] [--dir DIR] [--json] KEY=PATH...",
		Short: "Copy objects by key into files on devices",
		Long: "Copy the object of each key into PATH, a file in the mount, which is created with the object's\n" +
			"size and blobs. An existing PATH must have the same number of blobs with exactly the same sizes,\n" +
			"according to its user.hmc.blobs, or the key fails. A new PATH is removed when its key fails.",
		Annotations: withTopic(topicPairs),
		Example: "  hmcfs h2d kv.7=/mnt/hmc/cuda1/kv\n" +
			"  hmcfs h2d --timeout 30s --dir /mnt/hmc/cuda1 layer0 layer1",
		Args: arguments(1, -1, "at least one KEY=PATH"),
	}
	f := &h2dFlags{keyFlags: addKeyFlags(cmd)}
	cmd.Flags().StringVar(&f.dir, "dir", "", "Directory in which a file KEY is created for each KEY; the arguments are then keys without paths.")
	cmd.Flags().Var(&f.timeout, "timeout", "How long to wait for keys that do not exist. Default: not at all.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		return a.h2d(ctx, args, f)
	})
}

func (a keyVerbs) h2d(ctx context.Context, args []string, f *h2dFlags) error {
	pairs, _, err := a.aimed(args, f.dir, pathsAlways)
	if err != nil {
		return err
	}
	if err = f.timeout.check(); err != nil {
		return err
	}
	c, m, err := a.openKeysOf(ctx, f.keyFlags, pairs)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // the files stay
	if err = needsMount(m, "h2d", insteadOfH2D); err != nil {
		return err
	}
	l := &loading{c: c, m: m, r: a.newKeyReport("h2d", pairs, movedLine)}
	if f.timeout.Duration == 0 {
		l.take(ctx, allPlaces(len(pairs)))
		err = ctx.Err()
	} else {
		v := &arrivals{c: c, take: l.take, fail: l.r.fail}
		err = v.each(ctx, l.r.keys, f.timeout.Duration)
	}
	return l.r.finish(ctx, *f.asJSON, err)
}

// loading copies objects by key into files on devices.
type loading struct {
	c hetero.Client
	m place.Mount
	r *keyReport
}

func (l *loading) take(ctx context.Context, places []int) (again []int) {
	keys := mapped(places, func(place int) string { return l.r.keys[place] })
	infos, err := l.c.GetMetaInfo(ctx, keys, false)
	if ctx.Err() != nil {
		return places
	}
	var moves []hostMove
	for i, place := range places {
		var v hostMove
		terr := err
		if i < len(infos) {
			if terr = infos[i].Err; terr == nil {
				v, terr = l.openTarget(l.r.rows[place].Path, infos[i].Blobs)
			}
		}
		if terr != nil {
			l.r.fail(place, terr)
			continue
		}
		v.place = place
		moves = append(moves, v)
	}
	h := &hostMoves{c: l.c, r: l.r, ended: l.ended}
	h.call = func(ctx context.Context, keys []string, lists []hetero.DeviceBlobList) (hetero.Results, error) {
		return l.c.MGetH2D(ctx, keys, lists, hetero.GetOptions{})
	}
	h.run(ctx, moves)
	return nil
}

// openTarget opens the file that the daemon writes to, and creates it if it does not exist.
func (l *loading) openTarget(path string, blobs []devices.Size) (hostMove, error) {
	if path == standardStream || !isOn(l.m, path) {
		return hostMove{}, hinted(fmt.Errorf("%s is not on %s: %w", path, l.m.MountPoint, hetero.ErrInvalid),
			"hmcfs mget copies out of the mount")
	}
	v := hostMove{sizes: blobs, made: true}
	var err error
	v.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		v.made = false
		v.file, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	if err != nil {
		return hostMove{}, err
	}
	if v.made {
		err = v.file.Truncate(int64(v.size()))
	} else {
		err = v.measure(path)
	}
	if err != nil {
		discard(&v)
		return hostMove{}, errors.Join(err, v.file.Close())
	}
	v.device = devices.Name(xattr(path, deviceXattr))
	return v, nil
}

// measure sets the blob sizes to those of an existing file. The daemon checks whether they
// fit.
func (v *hostMove) measure(path string) error {
	st, err := v.file.Stat()
	if err != nil {
		return err
	}
	if devices.Size(st.Size()) == v.size() && xattr(path, blobsXattr) == "" {
		return nil
	}
	v.sizes, err = blobsOf(path, devices.Size(st.Size()), nil)
	return err
}

// ended stores the blob sizes of a new file, and removes it if its key failed.
func (l *loading) ended(v *hostMove, one hetero.Result) {
	switch {
	case one.Err != nil:
		discard(v)
	case v.made && len(v.sizes) > 1:
		// Without the attribute the bytes are the same.
		_ = unix.Setxattr(v.file.Name(), blobsXattr, []byte(blobsText(v.sizes)), 0)
	}
}

// discard removes a file that was created in vain.
func discard(v *hostMove) {
	if v.made {
		_ = os.Remove(v.file.Name())
	}
}
