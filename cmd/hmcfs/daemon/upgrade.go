package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/holder"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

const (
	// farewell is the time in which the answer to a request to upgrade is sent.
	farewell = 100 * time.Millisecond
	// programLimit bounds the time in which a program shows its version.
	programLimit = 10 * time.Second
)

// Upgrade has the holder start another program with the options of this one, and ends this
// process as a kill does: what is done for a death is all that is needed, and is tested more than
// any other way out.
func (d *Daemon) Upgrade(ctx context.Context, r adminapi.UpgradeRequest) (adminapi.UpgradeAnswer, error) {
	if d.holder == nil {
		return adminapi.UpgradeAnswer{}, fmt.Errorf("%w: %s has no holder, so its files can't be handed to another program; unmount, and mount with the new one",
			hetero.ErrUnsupported, d.opts.Places.MountPoint)
	}
	st, err := os.Stat(r.Program)
	switch {
	case err != nil:
		return adminapi.UpgradeAnswer{}, fmt.Errorf("%w: %w", hetero.ErrInvalid, err)
	case !filepath.IsAbs(r.Program) || !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
		return adminapi.UpgradeAnswer{}, fmt.Errorf("%w: %s is no program; give the absolute path of one", hetero.ErrInvalid, r.Program)
	}
	at, found, err := place.MountOf(r.Program)
	if err != nil || found && at.MountPoint == d.opts.Places.MountPoint {
		return adminapi.UpgradeAnswer{}, errors.Join(fmt.Errorf("%w: %s is on the mount itself, which has no daemon while the program starts; copy it elsewhere", hetero.ErrInvalid, r.Program), err)
	}
	next, err := versionOf(ctx, r.Program)
	if err == nil {
		err = canLeave(d.holder, next)
	}
	if err == nil {
		err = badgerkv.RoomToOpen(d.records()) // else neither program could
	}
	if err == nil {
		err = d.follow(r.Program)
	}
	if err != nil {
		return adminapi.UpgradeAnswer{}, fmt.Errorf("hand %s to %s: %w", d.opts.Places.MountPoint, r.Program, err)
	}
	d.log.Info("ending for another program", zap.String("program", r.Program))
	time.AfterFunc(farewell, func() { end(d.server, d.log) })
	return adminapi.UpgradeAnswer{PID: os.Getpid(), Version: next.Version}, nil
}

// versionOf asks a program for its version and its formats.
func versionOf(ctx context.Context, program string) (v adminapi.Version, err error) {
	ctx, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "version", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	if err == nil && v.Version == "" {
		err = errors.New("its answer has no version")
	}
	if err != nil {
		return adminapi.Version{}, fmt.Errorf("%w: it is not hmcfs, or does not run here: %w", hetero.ErrInvalid, err)
	}
	return v, nil
}

// canLeave returns an error unless a program can continue what this daemon and its holder leave.
func canLeave(h *holder.Client, next adminapi.Version) error {
	status, err := h.Status()
	if err != nil {
		return err
	}
	left := formats()
	left[protocolOfHolder] = adminapi.Format{Oldest: status.Protocol, Newest: status.Protocol}
	if err = canFollow(left, next); err != nil {
		return fmt.Errorf("%w: %w; nothing has changed", hetero.ErrUnsupported, err)
	}
	return nil
}

// end ends this process as a kill does, at a time when that is no error for any request.
func end(server *fs.Server, log *zap.Logger) {
	if err := server.Leave(); err != nil {
		log.Warn("requests that are being copied may fail", zap.Error(err))
	}
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
}

// follow makes a program the one that is started when this process has ended.
func (d *Daemon) follow(program string) error {
	next := d.opts.Again
	if next.Path != "" {
		next.Path, next.Args = program, slices.Clone(next.Args)
		if len(next.Args) > 0 {
			next.Args[0] = program
		}
		return d.holder.Next(next)
	}
	// A service manager starts what its unit names, which may have been replaced.
	mine, err := os.Executable()
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(program)
	if err == nil && real != mine {
		err = fmt.Errorf("%w: a service manager starts this daemon, from %s; install the program there, and repeat", hetero.ErrInvalid, mine)
	}
	return err
}
