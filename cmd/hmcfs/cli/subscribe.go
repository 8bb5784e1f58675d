package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

type subscribeFlags struct {
	*keyFlags

	dir     string
	force   bool
	timeout seconds
}

func (a keyVerbs) subscribeVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "subscribe [--timeout TIME] [--dir DIR] [-f] [--json] KEY[=PATH]...",
		Short: "Receive published files, each once",
		Long: "Wait until the keys are published, and receive them. A PATH in the mount receives the object by\n" +
			"rename: on the same device no bytes move; to another device they are copied directly. Any other\n" +
			"PATH receives all bytes, as does standard output if PATH is - or missing. A publication leaves\n" +
			"publish/ only when its last byte has been written. A missing key does not delay the others. What\n" +
			"another node published comes over the network, and then belongs to this node.",
		Annotations: withTopic(topicPairs),
		Example: "  hmcfs subscribe step1=/mnt/hmc/cuda1/grad.npy\n" +
			"  hmcfs subscribe --timeout 5s w0 >w0.bin\n" +
			"  seq -f layer%g 0 31 | hmcfs subscribe --dir /mnt/hmc/cuda1 -",
		Args: arguments(1, -1, "at least one KEY"),
	}
	f := &subscribeFlags{keyFlags: addKeyFlags(cmd)}
	cmd.Flags().StringVar(&f.dir, "dir", "", "Directory in which a file KEY is created for each KEY; the arguments are then keys without paths.")
	cmd.Flags().BoolVarP(&f.force, "force", "f", false, "Replace an existing PATH.")
	cmd.Flags().Var(&f.timeout, "timeout", "How long to wait for the keys. Default: 20s for one key, 60s for several.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		return a.subscribe(ctx, args, f)
	})
}

func (a keyVerbs) subscribe(ctx context.Context, args []string, f *subscribeFlags) error {
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
	s := &subscription{a: a, force: f.force, r: a.newKeyReport("subscribe", pairs, movedLine), reserved: map[int]bool{}}
	if s.c, s.m, err = a.openKeysOf(ctx, f.keyFlags, pairs); err != nil {
		return err
	}
	defer func() { _ = s.c.Close() }() // reserved publications are offered again
	if s.files, s.sessions, err = a.keysOf(ctx, s.m, publishDir); err != nil {
		return err
	}
	defer s.sessions.close()
	if toOutput {
		s.r.line = nil
	}
	v := &arrivals{c: s.c, published: true, take: s.take, fail: s.fail}
	err = v.each(ctx, s.r.keys, timeout)
	return s.r.finish(ctx, *f.asJSON, err)
}

type subscription struct {
	a     keyVerbs
	m     place.Mount
	force bool
	r     *keyReport
	// c is the subscriber's own session with the daemon, which holds its reservations.
	c hetero.Client
	// reserved are the places of keys that another subscriber was receiving at the last
	// attempt.
	reserved map[int]bool

	files keyFiles
	// sessions reach files where there is no mount.
	sessions *trees
}

// fail reports a key that did not appear in time, or could not be looked up.
func (s *subscription) fail(place int, err error) {
	if s.reserved[place] && errors.Is(err, hetero.ErrTimeout) {
		err = fmt.Errorf("%w: %w", errReserved, err)
	}
	s.r.fail(place, err)
}

func (s *subscription) there(key string) (bool, error) {
	_, err := s.files.stat(key)
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
		s.reserved[place] = errors.Is(err, errReserved)
		if err != nil && ctx.Err() == nil && s.lostRace(place, err) {
			again = append(again, place)
			continue
		}
		s.r.settle(place, err)
	}
	return again
}

// lostRace reports whether a failure means that another subscriber has received or reserved
// the publication, and nothing of it was written.
func (s *subscription) lostRace(place int, err error) bool {
	if _, written := errors.AsType[*writtenError](err); written {
		return false
	}
	if errors.Is(err, errReserved) {
		return true
	}
	if !slices.Contains([]error{hetero.ErrNotFound, hetero.ErrTimeout}, statusOf(err).Err) {
		return false
	}
	there, lerr := s.there(s.r.rows[place].Key)
	return lerr == nil && !there
}

// receive receives one existing publication. If it is on this node and its target is in the
// mount, it is renamed; otherwise it is reserved, and received when its bytes have arrived.
func (s *subscription) receive(ctx context.Context, place int) error {
	row := &s.r.rows[place]
	begun := time.Now()
	defer func() { row.Seconds = time.Since(begun).Seconds() }()
	here, err := s.there(row.Key)
	if err != nil {
		return err
	}
	inside := row.Path != standardStream && (isOn(s.m, row.Path) || s.sessions != nil && isHMC(row.Path))
	switch {
	case here && inside:
		err = s.rename(ctx, row)
	case inside && s.sessions != nil:
		err = hinted(fmt.Errorf("it is on another node: %w", hetero.ErrUnsupported), "without a mount, receive it into a file that is not hmcfs'")
	default:
		d := &delivery{subscription: s, row: row, mode: 0o644}
		if st, serr := s.files.stat(row.Key); serr == nil {
			d.mode = st.Mode().Perm()
		}
		err = d.run(ctx, inside)
	}
	if errors.Is(err, fs.ErrExist) {
		err = hinted(fmt.Errorf("%s exists already: %w", row.Path, fs.ErrExist), "nothing was received; use -f to replace it")
	}
	return err
}

// rename receives a publication of this node into a file of the same daemon.
func (s *subscription) rename(ctx context.Context, row *keyRow) error {
	st, err := s.files.stat(row.Key)
	if err != nil {
		return err
	}
	from := s.files.path(row.Key)
	if s.sessions != nil {
		row.Way, err = s.sessions.rename(ctx, from, row.Path, s.force)
	} else if err = rename(ctx, from, row.Path, s.force); err == nil {
		row.Way = xattr(row.Path, pathXattr)
	}
	switch {
	case err == nil:
		row.Bytes = st.Size()
	case errors.Is(err, unix.EBUSY):
		err = fmt.Errorf("%w: %w", errReserved, err)
	}
	return err
}
