package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

type publishFlags struct {
	*keyFlags

	device  string
	wait    bool
	timeout seconds
}

func (a keyVerbs) publishVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "publish [--device DEVICE] [--wait [--timeout TIME]] [--json] KEY=FILE...",
		Short: "Publish files, each for one receiver",
		Long: "A FILE in the mount becomes publish/KEY: it is renamed, and no bytes move; no process may have it\n" +
			"open. Any other FILE is first copied to the device; the original stays. It goes to its first\n" +
			"receiver, which uses hmcfs subscribe or mv, or reads all of it; rm withdraws it.",
		Annotations: withTopic(topicPairs),
		Example: "  hmcfs publish step1=/mnt/hmc/cuda0/grad.npy\n" +
			"  hmcfs publish --device cuda0 --wait --timeout 1m w0=./w0.bin",
		Args: arguments(1, -1, "at least one KEY=FILE"),
	}
	f := &publishFlags{keyFlags: addKeyFlags(cmd)}
	cmd.Flags().StringVar(&f.device, "device", "host", "Device to which files from outside the mount are copied.")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "Wait until all have been received.")
	cmd.Flags().Var(&f.timeout, "timeout", "How long --wait waits. Default: forever.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		if f.timeout.given && !f.wait {
			return usage(errors.New("--timeout limits --wait; give --wait too"))
		}
		return a.publish(ctx, args, f)
	})
}

func (a keyVerbs) publish(ctx context.Context, args []string, f *publishFlags) error {
	pairs, err := keyArgs(args, a.Stdin, pathsAlways)
	if err != nil {
		return err
	}
	m, err := a.mountFor(f.mount, pathsOf(pairs)...)
	if err != nil {
		return err
	}
	files, sessions, err := a.keysOf(ctx, m, publishDir)
	if err != nil {
		return err
	}
	defer sessions.close()
	var dir string
	if sessions == nil {
		if dir, err = deviceDir(m, f.device); err != nil {
			return err
		}
	}
	var events *client.Watch
	if f.wait {
		if events, err = a.listen(ctx, m); err != nil {
			return err
		}
		defer func() { _ = events.Close() }() // it was only read
	}
	r := a.newKeyReport("publish", pairs, namedLine)
	w := &receipts{r: r, files: files, places: map[string]int{}, inos: map[string]metadata.Ino{}}
	for i, p := range pairs {
		if ctx.Err() != nil {
			break
		}
		var ino metadata.Ino
		var perr error
		if r.rows[i].Path = files.path(p.key); sessions != nil {
			ino, perr = sessions.publishOne(ctx, m, f.device, p, r)
		} else {
			ino, perr = a.publishOne(ctx, m, dir, p, r)
		}
		if perr == nil && f.wait {
			w.places[p.key], w.inos[p.key] = i, ino
			continue
		}
		r.settle(i, a.reason(ctx, m, p.key, true, perr))
	}
	if f.wait {
		err = w.await(ctx, events, f.timeout)
	}
	return r.finish(ctx, *f.asJSON, err)
}

// publishOne publishes one file, and returns its inode number.
func (a keyVerbs) publishOne(ctx context.Context, m place.Mount, dir string, p keyPath, r *keyReport) (metadata.Ino, error) {
	file, err := filepath.EvalSymlinks(p.path)
	if err != nil {
		return 0, err
	}
	if !isOn(m, file) {
		file, err = a.stage(ctx, dir, p.path, r)
		if err != nil {
			return 0, err
		}
		defer func() {
			if err != nil {
				_ = os.Remove(file) // it is only a copy
			}
		}()
	}
	var st unix.Stat_t
	if err = unix.Lstat(file, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: file, Err: err}
	}
	err = notPublished(rename(ctx, file, publishedFile(m, p.key), false), p.path, "rm "+publishedFile(m, p.key))
	return metadata.Ino(st.Ino), err
}

// notPublished explains the error of the rename that publishes a file.
func notPublished(err error, path, withdraw string) error {
	switch {
	case errors.Is(err, fs.ErrExist):
		return hinted(fmt.Errorf("another object is already published under it: %w", hetero.ErrExist),
			"withdraw it with "+withdraw+", or wait until it is received")
	case errors.Is(err, unix.EBUSY):
		return hinted(fmt.Errorf("%s: a process has it open or mapped, or it is memory of another process: %w", path, hetero.ErrBusy),
			"close it first")
	}
	return err
}

// stage copies a file from outside the mount into a device's directory, under a name that
// is not a valid key.
func (a keyVerbs) stage(ctx context.Context, dir, file string, r *keyReport) (string, error) {
	staged := filepath.Join(dir, stagedName())
	_, err := copyIn(ctx, file, staged, r)
	return staged, err
}

func stagedName() string { return fmt.Sprintf(".publish~%d.%d", os.Getpid(), time.Now().UnixNano()) }

// copyIn copies a regular file from outside the mount to a name that must not exist.
func copyIn(ctx context.Context, file, target string, r *keyReport) (copier.File, error) {
	st, err := os.Stat(file)
	if err != nil {
		return copier.File{}, err
	}
	if !st.Mode().IsRegular() {
		return copier.File{}, hinted(fmt.Errorf("%s is not a regular file: %w", file, hetero.ErrInvalid), "name a file")
	}
	s, err := copier.Copy(ctx, []string{file}, target, copier.Options{New: true, Started: r.bar.grow, Moved: r.bar.add})
	if len(s.Files) == 1 {
		return s.Files[0], err
	}
	return copier.File{}, err
}

// receipts waits until publications have been received.
type receipts struct {
	r      *keyReport
	files  keyFiles
	places map[string]int
	inos   map[string]metadata.Ino
}

func (w *receipts) await(ctx context.Context, events *client.Watch, timeout seconds) error {
	soon, cancel := ctx, context.CancelFunc(func() {})
	if timeout.given {
		soon, cancel = context.WithTimeout(ctx, timeout.Duration)
	}
	defer cancel()
	for len(w.places) > 0 {
		e, err := events.Next(soon)
		switch {
		case err == nil:
			w.event(e)
		case ctx.Err() != nil:
			return ctx.Err()
		case soon.Err() != nil:
			return hinted(fmt.Errorf("waited %v for a receiver: %w", timeout.Duration, hetero.ErrTimeout),
				"it is still published; to withdraw it, remove it from "+w.files.path(""))
		default:
			return fmt.Errorf("it is published, but it is unknown whether it was received: %w", err)
		}
	}
	return nil
}

func (w *receipts) event(e adminapi.Event) {
	kind := objects.EventKind(e.Kind)
	if kind == objects.EventDropped {
		w.missed()
		return
	}
	place, mine := w.places[e.Key]
	if !mine || e.Ino != w.inos[e.Key] {
		return
	}
	switch kind {
	case objects.EventConsumed:
		w.r.succeed(place)
	case objects.EventWithdrawn, objects.EventExpired:
		w.r.fail(place, hetero.ErrWithdrawn)
	case objects.EventLost:
		w.r.fail(place, hetero.ErrLost)
	default:
		return
	}
	delete(w.places, e.Key)
}

// missed checks which publications still exist, as events were missed.
func (w *receipts) missed() {
	for key, place := range w.places {
		st, err := w.files.stat(key)
		if err == nil && inoOf(st) == w.inos[key] {
			continue
		}
		w.r.fail(place, hinted(fmt.Errorf("it is no longer published, and the event that ended it was missed: %w", hetero.ErrIO),
			"ask the receiver"))
		delete(w.places, key)
	}
}
