package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// farewell is the time in which the answer to a request to upgrade is sent.
const farewell = 100 * time.Millisecond

// Upgrade has the holder start another program with the options of this one, and ends this
// process as a kill does: what is done for a death is all that is needed, and is tested more than
// any other way out.
func (d *Daemon) Upgrade(_ context.Context, r adminapi.UpgradeRequest) (adminapi.UpgradeAnswer, error) {
	if d.holder == nil {
		return adminapi.UpgradeAnswer{}, fmt.Errorf("%w: %s was mounted without --hold, so its files can't be handed to another program; unmount, and mount with the new one",
			hetero.ErrUnsupported, d.opts.Places.MountPoint)
	}
	st, err := os.Stat(r.Program)
	switch {
	case err != nil:
		return adminapi.UpgradeAnswer{}, fmt.Errorf("%w: %w", hetero.ErrInvalid, err)
	case !filepath.IsAbs(r.Program) || !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
		return adminapi.UpgradeAnswer{}, fmt.Errorf("%w: %s is no program; give the absolute path of one", hetero.ErrInvalid, r.Program)
	}
	if at, found, err := place.MountOf(r.Program); err != nil || found && at.MountPoint == d.opts.Places.MountPoint {
		return adminapi.UpgradeAnswer{}, errors.Join(fmt.Errorf("%w: %s is on the mount itself, which has no daemon while the program starts; copy it elsewhere", hetero.ErrInvalid, r.Program), err)
	}
	next := d.opts.Again
	next.Path, next.Args = r.Program, slices.Clone(next.Args)
	if len(next.Args) > 0 {
		next.Args[0] = r.Program
	}
	if err := d.holder.Next(next); err != nil {
		return adminapi.UpgradeAnswer{}, fmt.Errorf("hand %s to %s: %w", d.opts.Places.MountPoint, r.Program, err)
	}
	d.log.Info("ending for another program", zap.String("program", r.Program))
	time.AfterFunc(farewell, func() { _ = unix.Kill(os.Getpid(), unix.SIGKILL) })
	return adminapi.UpgradeAnswer{PID: os.Getpid()}, nil
}
