package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/holder"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/web"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/transport"
)

// build creates the layers of the mount. On an error it undoes everything.
func (d *Daemon) build(ctx context.Context) error {
	var back undo
	defer back.run()
	steps := []func(context.Context, *undo) error{
		d.takePlaces, d.startGuard, d.openDevices, d.readTopology, d.openRecords, d.openStore, d.join, d.serveFiles, d.listen, d.announce, d.reportReady,
	}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s %s: %w", d.verb(), d.opts.Places.MountPoint, err)
		}
		if err := step(ctx, &back); err != nil {
			return err
		}
	}
	back.release()
	return nil
}

// takePlaces creates and locks the directories, and removes the remains of a dead daemon.
func (d *Daemon) takePlaces(ctx context.Context, back *undo) error {
	p := d.opts.Places
	if err := p.Prepare(d.opts.UID, d.opts.Settings.AllowOther); err != nil {
		return err
	}
	me := place.Holder{
		PID: os.Getpid(), MountPoint: p.MountPoint, StateDir: p.State, RuntimeDir: p.Runtime, Served: d.opts.NoMount,
	}
	var err error
	if d.lock, err = acquire(ctx, p.Lock(), me); err != nil {
		return d.refusedRuntime(err)
	}
	back.push(func() {
		d.lock.Remove()
		if !d.inherited { // the holder's socket is there
			p.Clean()
		}
	})
	if d.stateLock, err = acquire(ctx, p.StateLock(), me); err != nil {
		return refused("state directory "+p.State+" is in use", err, "end that daemon, or use another --state-dir")
	}
	back.push(d.stateLock.Release)
	if d.opts.NoMount {
		if err = place.MakeServed(p.MountPoint); err != nil {
			return err
		}
	} else if err = d.findHolder(ctx, back); err != nil || d.resumes {
		return err
	}
	release, err := clearMountPoint(p.MountPoint, d.opts.NoMount, d.opts.UID)
	if err != nil {
		return err
	}
	if !d.opts.NoMount {
		release() // the mount excludes others
		return nil
	}
	d.release = release
	back.push(release)
	return nil
}

// endingLimit bounds the wait for a daemon that is shutting down.
const endingLimit = 15 * time.Second

// acquire locks a file. It waits for a holder that is about to exit: one that was killed, or one
// whose mount is gone, as after umount(8), which doesn't wait for the daemon.
func acquire(ctx context.Context, path string, h place.Holder) (*place.Lock, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(endingLimit); ; {
		l, err := place.Acquire(path, h)
		held, isHeld := errors.AsType[*place.HeldError](err)
		if !isHeld || !ending(held.Holder) || time.Now().After(limit) {
			return l, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// ending reports whether the holder of a lock is about to exit.
func ending(h place.Holder) bool {
	if h.Killed() {
		return true
	}
	if h.MountPoint == "" || h.Served {
		return false
	}
	at, err := place.MountsAt(h.MountPoint)
	return err == nil && !slices.ContainsFunc(at, place.Mount.IsHMCFS)
}

// refusedRuntime returns the error for a runtime directory that another daemon uses: of this mount point, or
// of another one that has been given the same directory.
func (d *Daemon) refusedRuntime(err error) error {
	p := d.opts.Places
	held, is := errors.AsType[*place.HeldError](err)
	if !is || held.Holder.MountPoint == "" || held.Holder.MountPoint == p.MountPoint {
		return refused(p.MountPoint+" is already in use", err, "end that first: hmcfs umount "+p.MountPoint)
	}
	p.Unlink()
	return refused("runtime directory "+p.Runtime+" is in use", err, "end that first: hmcfs umount "+held.Holder.MountPoint+", or give another --runtime-dir")
}

// refused describes a failure to acquire a lock: it names the object, the process that has it and the
// remedy.
func refused(what string, err error, remedy string) error {
	held, is := errors.AsType[*place.HeldError](err)
	if !is {
		return err
	}
	if held.Holder.PID == 0 {
		return fmt.Errorf("%s by another process; %s", what, remedy)
	}
	return fmt.Errorf("%s by process %d, which serves %s; %s", what, held.Holder.PID, held.Holder.MountPoint, remedy)
}

// startGuard creates the guard, whose process starts when it is first needed.
func (d *Daemon) startGuard(_ context.Context, back *undo) error {
	if d.opts.Guard == nil {
		return nil
	}
	d.guard = owner.NewGuard(d.opts.Guard, 0)
	back.push(func() { d.guard.Close() }) //nolint:errcheck // the error that led here is reported
	return nil
}

func (d *Daemon) openDevices(ctx context.Context, back *undo) error {
	runtime := d.opts.Places.Runtime
	left, err := host.Leftover(host.Options{Dir: runtime})
	if err != nil {
		return err
	}
	// A failed mount leaves the tier of an earlier mount as it was, and removes its own,
	// even if a later device is at fault.
	back.push(func() {
		if len(left) == 0 {
			removeTier(runtime)
		}
	})
	d.families = Families(host.Options{Dir: runtime, Atime: d.opts.Settings.Atime()}, d.opts.Logger)
	var raw []devices.Device
	if specs := d.opts.Settings.Devices; len(specs) > 0 {
		raw, err = openSpecs(ctx, d.families, withHost(specs))
	} else {
		raw, err = d.openFound(ctx, d.families)
	}
	if err != nil {
		return err
	}
	d.raw = raw
	back.push(func() {
		for _, dev := range d.raw {
			dev.Close() //nolint:errcheck // the error that led here is reported
		}
	})
	for _, dev := range raw {
		if d.opts.WrapDevice != nil {
			dev = d.opts.WrapDevice(dev)
		}
		d.devs = append(d.devs, dev)
	}
	return nil
}

// removeTier frees a host tier that no process has open.
func removeTier(runtimeDir string) {
	left, err := host.Leftover(host.Options{Dir: runtimeDir})
	if err != nil {
		return
	}
	for _, l := range left {
		l.Remove() //nolint:errcheck // the error that led here is reported
	}
}

// records returns the options of the records, without a journal.
func (d *Daemon) records() badgerkv.Options {
	return badgerkv.Options{
		Dir: d.opts.Places.Metadata(), Reserve: uint64(d.opts.Settings.Reserve), Witness: d.opts.Places.Witness(), Logger: d.opts.Logger,
	}
}

func (d *Daemon) openRecords(ctx context.Context, back *undo) error {
	if err := d.opts.Places.SweepMetadata(); err != nil {
		return fmt.Errorf("remove records left over from the last mount: %w", err)
	}
	dir := d.opts.Places.Metadata()
	if err := d.claimForNew(dir); err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		back.push(func() { d.opts.Places.RemoveMetadata() }) //nolint:errcheck // the error that led here is reported
	}
	journal, err := d.opts.Places.OpenJournal(true)
	if err != nil {
		return err
	}
	defer func() { _ = journal.Close() }() // it is mapped
	opts := d.records()
	opts.Journal = journal
	kv, err := badgerkv.Open(ctx, opts)
	if err != nil {
		return d.recordsFault(err)
	}
	limits, err := d.opts.Settings.Records()
	if err != nil {
		return errors.Join(err, kv.Close())
	}
	d.meta, err = metadata.Open(ctx, kv, metadata.Options{
		Logger: d.opts.Logger, Now: coarseNow, Limits: limits, KeepNameless: d.holder != nil,
	})
	if err != nil {
		return errors.Join(d.recordsFault(err), kv.Close())
	}
	back.push(func() { d.meta.Close() }) //nolint:errcheck // the error that led here is reported
	return nil
}

// claimForNew refuses host memory that has files when there are no records: it can't belong
// to new ones. It must run before a store is created, whose witness would replace the one
// that identifies the missing records.
func (d *Daemon) claimForNew(dir string) error {
	empty, err := badgerkv.IsEmpty(dir)
	if err != nil || !empty {
		return err
	}
	for _, dev := range d.devs {
		if files, ok := devices.FilesOf(dev); ok {
			if err := files.Claim(objects.TierOwner(0)); err != nil {
				return fmt.Errorf("there are no records in %s: %w", dir, err)
			}
		}
	}
	return nil
}

// IsFull reports whether the error of a daemon is that a disk has no space.
func IsFull(err error) bool {
	if _, limited := errors.AsType[*badgerkv.SizeLimitError](err); limited {
		return false // waiting does not change it
	}
	return errors.Is(err, metadata.ErrNoSpace) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// recordsFault describes an error of the records, with the directory and the remedy.
func (d *Daemon) recordsFault(err error) error {
	dir := d.opts.Places.Metadata()
	if damaged, ok := errors.AsType[*badgerkv.JournalError](err); ok {
		return journalFault(d.opts.Places.State, damaged)
	}
	switch {
	case errors.Is(err, badgerkv.ErrLocked):
		return fmt.Errorf("state directory %s is in use by another process; unmount that mount, or use another --state-dir", d.opts.Places.State)
	case errors.Is(err, metadata.ErrNoSpace):
		return err
	case errors.Is(err, metadata.ErrNewer):
		return fmt.Errorf("metadata in %s: %w; use the newer hmcfs that wrote it, or another --state-dir", dir, err)
	case !errors.Is(err, metadata.ErrCorrupt):
		return fmt.Errorf("metadata in %s can't be opened, although no damage is known: %w; remove the cause, and mount again", dir, err)
	default:
		return fmt.Errorf("metadata in %s can't be read: %w; restore a good copy, recover what can be read (hmcfs fsck --repair --state-dir %s), or move the directory away to start empty", dir, err, d.opts.Places.State)
	}
}

func (d *Daemon) openStore(ctx context.Context, back *undo) error {
	s := d.opts.Settings
	moves := s.Transport()
	moves.Logger = d.opts.Logger
	moves.Enter, moves.Near = d.pinner.Enter, d.pinner.Near
	engine, err := transport.New(moves)
	if err != nil {
		return err
	}
	d.engine = engine
	back.push(func() { engine.Close() }) //nolint:errcheck // the error that led here is reported
	d.store, err = objects.Open(ctx, objects.Options{
		Meta: d.meta, Devices: d.devs, Engine: engine,
		Atime: d.opts.Settings.Atime(), Guard: d.guard,
		Keeper: d.keeper(), Resumes: d.resumes, Absent: limitIf(d.resumes, absentLimit), DirMode: d.rootMode(), UID: uint32(d.opts.UID), GID: uint32(os.Getgid()), Logger: d.opts.Logger,
	})
	if err != nil {
		if errors.Is(err, metadata.ErrCorrupt) {
			return d.recordsFault(err)
		}
		return fmt.Errorf("recover the objects of %s: %w", d.opts.Places.State, err)
	}
	d.tree, d.collector = cluster.NewMesh(d.store, nil), d.newCollector(nil)
	d.warnRecovery(d.store.Recovery())
	back.push(func() {
		d.store.Close(context.WithoutCancel(ctx), objects.CloseOptions{Keep: true, Leave: d.inherited}) //nolint:errcheck // the error that led here is reported
	})
	return nil
}

// warnRecovery warns of problems with the records that were found during the start.
func (d *Daemon) warnRecovery(r objects.Recovery) {
	if r.Older == "" && r.Missing == 0 {
		return
	}
	cause := "host memory is missing"
	if r.Older != "" {
		cause = fmt.Sprintf("the records in %s do not match the host memory: %s; changes of names and attributes may be lost", d.opts.Places.Metadata(), r.Older)
	}
	d.warn(fmt.Sprintf("%s; %d files of host memory (%v) have no record and are set aside, and %d files of the records are lost; see hmcfs fsck %s",
		cause, r.Aside, r.AsideUsed, r.Missing, d.opts.Places.MountPoint))
}

// rootMode returns the mode of a new device directory: if root mounts and lets other users
// in, each of them may create files, as in /tmp.
func (d *Daemon) rootMode() metadata.Mode {
	if d.opts.Settings.AllowOther && d.opts.UID == 0 {
		return 0o1777
	}
	return 0o755
}

// serveFiles makes the files reachable: through the kernel and sessions or, without a mount,
// through sessions alone.
func (d *Daemon) serveFiles(ctx context.Context, back *undo) error {
	o := d.fileOptions()
	if d.opts.NoMount {
		d.files = fs.NewFiles(o)
		back.push(d.files.Close)
		return nil
	}
	server, err := d.mount(ctx, o)
	if err != nil {
		err = fmt.Errorf("mount %s: %w", d.opts.Places.MountPoint, err)
		if errors.Is(err, fs.ErrNoFUSE) {
			err = fmt.Errorf("%w; or do without a mount: hmcfs serve %s", err, d.opts.Places.MountPoint)
		}
		return err
	}
	d.server, d.files = server, server.Files()
	go func() {
		server.Wait()
		close(d.gone)
	}()
	if m, found, err := place.MountAt(d.opts.Places.MountPoint); err == nil && found {
		d.dev = m.Dev
	}
	if d.resumes {
		// Programs use the mount again: an error from here on is the daemon's death, which they
		// don't notice if nothing is closed before this process exits.
		back.release()
		return nil
	}
	back.push(func() { d.unmountForSure(context.WithoutCancel(ctx)) })
	return nil
}

func (d *Daemon) fileOptions() fs.Options {
	s := d.opts.Settings
	return fs.Options{
		Store: d.store, Engine: d.engine, Cluster: d.otherNodes(), Tree: d.tree, MountPoint: d.opts.Places.MountPoint,
		AllowOther: s.AllowOther, Passthrough: fs.PassthroughMode(s.Passthrough),
		ReadAhead: s.ReadAhead, NoReadAhead: s.ReadAhead == 0,
		MaxWrite: s.MaxWrite, MaxBackground: s.MaxBackground, CacheTimeout: cacheTimeout(s.CacheTimeout),
		ListViews: s.ListViews, MountOptions: s.MountOptions, Version: d.opts.Version,
		Config: d.configJSON, Stats: d.statsJSON, Topology: d.topologyJSON, Logger: d.opts.Logger, Debug: s.Debug,
	}
}

// verb returns the verb of the command line that starts such a daemon.
func (d *Daemon) verb() string {
	if d.opts.NoMount {
		return "serve"
	}
	return "mount"
}

func (d *Daemon) listen(ctx context.Context, back *undo) error {
	if err := d.listenOutside(ctx, back); err != nil { // before Status can be asked for the addresses
		return err
	}
	calls := admin.NewCalls(d.opts.AccessLog)
	gatherer := admin.Metrics{
		Version: d.opts.Version, Transfers: d.engine.Stats, Devices: d.store.Devices, Cluster: d.Cluster, Limits: d.limits,
		Calls:      calls,
		Operations: func() []fs.OperationStats { return d.files.Status().Operations },
	}.Registry()
	var err error
	d.admin, err = admin.Listen(ctx, admin.Options{
		Socket: d.opts.Places.Socket(), Backend: d, Sharer: d, Collector: d, Keyed: keyed{d}, Files: d.files, Guard: d.guard, Refusals: &d.refusals, Owner: d.opts.UID, Open: d.opts.Settings.AllowOther,
		ReadOnly: d.opts.Settings.ReadOnly(), Calls: calls, Gatherer: gatherer, Topology: d.topologyJSON, Page: d.pageURL(),
		Debug: d.opts.Settings.Debug, Logger: d.opts.Logger.Named("admin"), Continues: limitIf(d.holder != nil, sessionsLimit), Continued: d.resumes,
	})
	if err != nil {
		return err
	}
	back.push(func() { d.admin.Close(context.WithoutCancel(ctx)) }) //nolint:errcheck // the error that led here is reported
	d.store.AwaitOwners()
	d.metrics.Serve(web.Metrics(gatherer))
	d.page.Serve(web.Page(d.token, d.admin.Watcher()))
	return nil
}

// announce lets others find a daemon without a mount. A mount announces itself.
func (d *Daemon) announce(context.Context, *undo) error {
	if !d.opts.NoMount {
		return nil
	}
	config, err := d.configJSON()
	if err != nil {
		return err
	}
	return place.Announce(d.opts.Places.MountPoint, config, d.opts.Settings.AllowOther)
}

// reportReady has the holder start the daemon again from here on, from the same file even if another
// one is installed in its place.
func (d *Daemon) reportReady(context.Context, *undo) error {
	if d.holder == nil {
		return nil
	}
	program, err := os.Open("/proc/self/exe")
	if err == nil {
		err = errors.Join(d.holder.Keep(holder.Program, program), program.Close())
	}
	if err == nil {
		err = d.holder.Ready(d.opts.Again)
	}
	if err != nil {
		return fmt.Errorf("%s: the holder can't be told how to start the daemon again: %w", d.opts.Places.MountPoint, err)
	}
	return nil
}

// limits returns the limits of users and files, with the number of refusals.
func (d *Daemon) limits() []metadata.LimitStatus {
	held := d.guard.Stats()
	return slices.Concat(d.meta.Limits(), d.refusals.Limits(), d.clientRefusals.Limits(), d.store.Limits(), d.files.Limits(),
		[]metadata.LimitStatus{{Name: "user-silent-descriptors", Limit: owner.MaxPerUser, Refused: held.Refused}})
}
