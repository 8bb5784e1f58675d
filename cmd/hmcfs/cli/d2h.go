package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

type d2hFlags struct {
	*keyFlags

	existing, blobs string
	ttl             seconds
}

func (a keyVerbs) d2hVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "d2h [--existing RULE] [--ttl TIME] [--blobs SIZES] [--json] KEY=FILE...",
		Short: "Copy files from device to host memory, under keys",
		Long: "Copy each FILE, which must be in the mount, into an object in host memory that has the key. The\n" +
			"object's bytes are exactly those of the FILE; the sizes of its blobs, from --blobs or from the\n" +
			"FILE's user.hmc.blobs, are stored separately. No object is visible before it is complete.\n\n" +
			"By default a key that exists is skipped, which is reported and is not a failure. --existing\n" +
			"replace replaces its object in one step, and --existing fail fails.",
		Annotations: withTopic(topicPairs),
		Example: "  hmcfs d2h kv.7=/mnt/hmc/cuda0/kv --ttl 10m\n" +
			"  hmcfs d2h --existing replace --blobs 1MiB,1MiB layer0=/mnt/hmc/cuda0/l0",
		Args: arguments(1, -1, "at least one KEY=FILE"),
	}
	f := &d2hFlags{keyFlags: addKeyFlags(cmd)}
	flags := cmd.Flags()
	flags.StringVar(&f.existing, "existing", string(hetero.ExistingSkip), "What to do with a key that exists: skip, replace or fail.")
	flags.StringVar(&f.blobs, "blobs", "", "Sizes of the blobs of each FILE, separated by commas. Default: the FILE's own, or one blob.")
	flags.Var(&f.ttl, "ttl", "How long the objects live, in whole seconds. Default: forever.")
	completeWith(cmd, "existing", string(hetero.ExistingSkip), string(hetero.ExistingReplace), string(hetero.ExistingFail))
	return runs(cmd, func(ctx context.Context, args []string) error {
		return a.d2h(ctx, args, f)
	})
}

func (a keyVerbs) d2h(ctx context.Context, args []string, f *d2hFlags) error {
	pairs, err := keyArgs(args, a.Stdin, pathsAlways)
	if err != nil {
		return err
	}
	o := hetero.SetOptions{Existing: hetero.Existing(f.existing), TTL: f.ttl.Duration}
	if err = o.Validate(); err != nil {
		return usage(err)
	}
	var asked []devices.Size
	if f.blobs != "" {
		if asked, err = parseBlobs(f.blobs); err != nil {
			return usage(fmt.Errorf("--%w", err))
		}
	}
	c, m, err := a.openKeysOf(ctx, f.keyFlags, pairs)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // the objects stay
	if err = needsMount(m, "d2h", insteadOfD2H); err != nil {
		return err
	}
	r := a.newKeyReport("d2h", pairs, d2hLine)
	var moves []hostMove
	for i, p := range pairs {
		v, serr := openSource(m, p.path, asked)
		if serr != nil {
			r.fail(i, serr)
			continue
		}
		v.place = i
		moves = append(moves, v)
	}
	h := &hostMoves{c: c, r: r}
	h.call = func(ctx context.Context, keys []string, lists []hetero.DeviceBlobList) (hetero.Results, error) {
		return c.MSetD2H(ctx, keys, lists, o)
	}
	h.run(ctx, moves)
	return r.finish(ctx, *f.asJSON, nil)
}

func d2hLine(row keyRow) string {
	if row.Skipped {
		return row.Key + ": skipped, it exists already"
	}
	return fmt.Sprintf("%s -> %s: %d bytes (%v)", row.Path, row.Key, row.Bytes, devices.Size(row.Bytes))
}

// openSource opens a file of the mount for the daemon to read.
func openSource(m place.Mount, path string, asked []devices.Size) (hostMove, error) {
	if !isOn(m, path) {
		if _, err := os.Stat(path); err != nil {
			return hostMove{}, err
		}
		return hostMove{}, hinted(fmt.Errorf("%s is not on %s: %w", path, m.MountPoint, hetero.ErrInvalid),
			"hmcfs mset copies it into the mount and sets its key")
	}
	file, err := os.Open(path)
	if err != nil {
		return hostMove{}, err
	}
	v := hostMove{file: file}
	st, err := file.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = hinted(fmt.Errorf("%s is not a regular file: %w", path, hetero.ErrInvalid), "name a file")
	}
	if err == nil {
		v.sizes, err = blobsOf(path, devices.Size(st.Size()), asked)
	}
	if err != nil {
		return hostMove{}, errors.Join(err, file.Close())
	}
	v.device = devices.Name(xattr(path, deviceXattr))
	return v, nil
}
