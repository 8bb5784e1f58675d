package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

type subscribeFlags struct {
	*keyFlags

	dir     string
	force   bool
	timeout seconds
}

func (a *app) subscribeVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "subscribe [--timeout TIME] [--dir DIR] [-f] [--json] KEY[=PATH]...",
		Short: "Receive what is published, each once",
		Long: "Wait until the keys are published and receive them. A PATH in the mount gets the object by\n" +
			"rename: on its own device no byte moves, to another one it is copied from device to device.\n" +
			"Any other PATH, or standard output for - and where there is none, gets all of its bytes.\n" +
			"What was received is gone from publish/. A key that is missing holds up no other.\n" +
			"What is published on another node comes over the network, and is of this one then.\n\n" + pairsText,
		Example: "  hmcfs subscribe step1=/mnt/hmc/cuda1/grad.npy\n" +
			"  hmcfs subscribe --timeout 5s w0 >w0.bin\n" +
			"  seq -f layer%g 0 31 | hmcfs subscribe --dir /mnt/hmc/cuda1 -",
		Args: arguments(1, -1, "at least one KEY"),
	}
	f := &subscribeFlags{keyFlags: addKeyFlags(cmd)}
	cmd.Flags().StringVar(&f.dir, "dir", "", "The directory that gets a file KEY for each; arguments are keys alone then.")
	cmd.Flags().BoolVarP(&f.force, "force", "f", false, "Replace a PATH that is there.")
	cmd.Flags().Var(&f.timeout, "timeout", "How long keys are waited for. Default: 20s for one key, 60s for several.")
	cmd.RunE = running(func(ctx context.Context, args []string) error {
		return a.subscribe(ctx, args, f)
	})
	return cmd
}

func (a *app) subscribe(ctx context.Context, args []string, f *subscribeFlags) error {
	pairs, toOutput, err := a.aimed(args, f.dir, pathsIfAny)
	if err == nil {
		err = unmixed(toOutput, *f.asJSON)
	}
	if err != nil {
		return err
	}
	timeout, err := f.timeout.orDefault(len(pairs))
	if err != nil {
		return err
	}
	m, err := keyMount(f.mount, pairs)
	if err != nil {
		return err
	}
	s := &subscription{a: a, m: m, force: f.force, r: a.newKeyReport("subscribe", pairs)}
	if s.far, err = a.openFar(ctx, m); err != nil {
		return err
	}
	defer s.far.close()
	if s.r.line = movedLine; toOutput {
		s.r.line = nil
	}
	v := &arrivals{
		there: func(key string) (bool, error) { return s.anywhere(ctx, key) },
		take:  s.take, fail: s.r.fail, kinds: []string{eventPublished},
		listen: func(ctx context.Context) (eventStream, error) {
			here, lerr := a.listen(ctx, m)
			if lerr != nil || s.far == nil {
				return here, lerr
			}
			return s.far.stream(ctx, keysOf(pairs), true, here), nil
		},
	}
	err = v.each(ctx, keysOf(pairs), timeout)
	return s.r.finish(ctx, *f.asJSON, err)
}

// subscription receives publications.
type subscription struct {
	a     *app
	m     place.Mount
	force bool
	r     *keyReport
	// far is nil where there are no other nodes.
	far *far
}

// anywhere says whether a key is published, here or on another node.
func (s *subscription) anywhere(ctx context.Context, key string) (bool, error) {
	is, err := s.there(key)
	if is || err != nil || s.far == nil {
		return is, err
	}
	_, err = s.far.info(ctx, key)
	return err == nil, nil // one that can't be seen now may come
}

func (s *subscription) there(key string) (bool, error) {
	_, err := os.Lstat(publishedFile(s.m, key))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (s *subscription) take(ctx context.Context, places []int) (again []int) {
	for _, place := range places {
		if ctx.Err() != nil {
			return append(again, place)
		}
		err := s.receive(ctx, place)
		if err != nil && ctx.Err() == nil && s.lostRace(place, err) {
			again = append(again, place)
			continue
		}
		s.r.settle(place, err)
	}
	return again
}

// lostRace says whether a failure is that somebody else has received what was
// there.
func (s *subscription) lostRace(place int, err error) bool {
	if !slices.Contains([]error{hetero.ErrNotFound, hetero.ErrIO, hetero.ErrTimeout}, statusOf(err).Err) {
		return false
	}
	there, lerr := s.there(s.r.rows[place].Key)
	return lerr == nil && !there
}

// source is the file that has a publication, of this node or received from
// another one; then it is removed with what done returns.
func (s *subscription) source(ctx context.Context, row *keyRow) (path string, done func(), err error) {
	path, done = publishedFile(s.m, row.Key), func() {}
	if is, lerr := s.there(row.Key); is || lerr != nil || s.far == nil {
		return path, done, lerr
	}
	if err = isFree(row.Path, s.force); err != nil {
		return "", done, err
	}
	if path, err = s.far.fetch(ctx, row.Key, row.Path); err != nil {
		return "", done, err
	}
	return path, func() { _ = os.Remove(path) }, nil // gone already, if it was renamed
}

// receive takes one publication that is there.
func (s *subscription) receive(ctx context.Context, place int) error {
	row := &s.r.rows[place]
	begun := time.Now()
	defer func() { row.Seconds = time.Since(begun).Seconds() }()
	from, done, err := s.source(ctx, row)
	if err != nil {
		return err
	}
	defer done()
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	o := copier.Options{New: !s.force, Consume: true, Started: s.r.bar.grow, Moved: s.r.bar.add}
	switch {
	case row.Path == standardStream:
		s.r.bar.grow(st.Size())
		row.Bytes, err = copier.Pour(ctx, s.a.out(), from, o)
	case isOn(s.m, row.Path):
		if err = rename(ctx, from, row.Path, s.force); err == nil {
			row.Bytes, row.Way = st.Size(), xattr(row.Path, "user.hmc.path")
		}
	default:
		var sum copier.Summary
		sum, err = copier.Copy(ctx, []string{from}, row.Path, o)
		if len(sum.Files) == 1 {
			row.Bytes, row.Way = sum.Files[0].Bytes, sum.Files[0].Path
		}
	}
	if errors.Is(err, fs.ErrExist) {
		err = hinted(fmt.Errorf("%s is there already: %w", row.Path, fs.ErrExist), "-f replaces it; nothing was received")
	}
	return err
}
