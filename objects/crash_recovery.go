package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/transport"
)

// Recovery reports the differences between the records and the host memory that Open
// has found.
type Recovery struct {
	// Older says why the records are not those that the host memory was last used with;
	// empty if they are.
	Older string
	// Aside counts the files of host memory that have no record and were therefore set
	// aside, and AsideUsed their bytes.
	Aside     int
	AsideUsed devices.Size
	// Missing counts the objects whose host memory is missing, and which are therefore
	// lost.
	Missing int
	// Survived counts the objects whose device memory an earlier process has left, and
	// SurvivedBytes it; Freed is what belonged to no object any more, or to no known device.
	Survived             int
	SurvivedBytes, Freed devices.Size
}

// Recovery returns the differences found by Open, and what was freed since.
func (s *Store) Recovery() Recovery {
	r := s.recovery
	r.Freed += devices.Size(s.freedAbsent.Load())
	return r
}

// Epochs returns the epochs of the devices' memory.
func (s *Store) Epochs() map[metadata.DeviceName]metadata.Epoch {
	all := map[metadata.DeviceName]metadata.Epoch{}
	for _, t := range s.tiers {
		all[t.Name] = t.Epoch()
	}
	return all
}

// LostSince returns the devices of which objects are lost because their memory was in the epochs given, and
// the device is gone or in another one.
func (s *Store) LostSince(ctx context.Context, before map[metadata.DeviceName]metadata.Epoch) ([]metadata.DeviceName, error) {
	ended := maps.Clone(before)
	for name, now := range s.Epochs() {
		if ended[name] == now {
			delete(ended, name)
		}
	}
	lost := map[metadata.DeviceName]bool{}
	if len(ended) > 0 {
		err := s.meta.Walk(ctx, func(in metadata.Inode) error {
			if epoch, is := ended[in.Device]; is && in.IsRegular() && in.Epoch == epoch {
				lost[in.Device] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(lost)), nil
}

// largestIno is above all inode numbers of objects. A file in a tier under a higher
// number was not made by hmcfs.
const largestIno = uint64(1) << 62

// TierOwner returns the owner string under which a store of a generation claims host
// memory.
func TierOwner(g metadata.Generation) string { return fmt.Sprintf("%016x", uint64(g)) }

// startup compares the records with the devices, before the store is in use.
type startup struct {
	meta   *metadata.Store
	engine *transport.Engine
	log    *zap.Logger
	tiers  tiers
	// The findings.
	host      map[*content.Tier]*hostRecords
	recovery  Recovery
	witnesses witnesses
	// nameless are the inodes that were open without a name, and orphans those of them whose
	// device memory is there.
	nameless map[Ino]metadata.Inode
	orphans  map[Ino]orphan
	// received are the files that have been received, except for their name, by readers that may continue.
	received []Ino
}

// hostRecords is the comparison of the records with one host tier, before any change.
type hostRecords struct {
	hasFiles bool
	// bonded reports whether the records have a bond with the tier.
	bonded bool
	// older says how the records differ from those that the tier was last used with; empty
	// if they do not.
	older string
}

// know determines, before any change, whether the records are those that a host tier
// was last used with, and makes the store assign only inode numbers that the tier has
// never seen.
func (st *startup) know(ctx context.Context, t *content.Tier) error {
	if err := t.Files.Claim(TierOwner(st.meta.Generation())); err != nil {
		return err
	}
	known := &hostRecords{}
	st.host[t] = known
	seen, err := t.Files.Number(inosNumber)
	if err != nil {
		return err
	}
	err = t.Files.Each(func(id uint64) error {
		if id &^= redoBit; id < largestIno {
			seen = max(seen, id+1)
		}
		known.hasFiles = true
		return nil
	})
	if err == nil {
		err = st.compare(ctx, t, known)
	}
	if err == nil {
		err = st.meta.RaiseInos(ctx, Ino(seen))
	}
	return err
}

// compare determines how the records differ from those of the tier.
func (st *startup) compare(ctx context.Context, t *content.Tier, known *hostRecords) error {
	bond, err := st.meta.DeviceBond(ctx, t.Name)
	if err != nil {
		return err
	}
	number, err := t.Files.Number(bondNumber)
	if err != nil {
		return err
	}
	st.witnesses = append(st.witnesses, &witness{numbers: t.Files})
	known.bonded = bond.Now != 0
	switch {
	case st.meta.Cut():
		known.older = "their latest entries were cut off, or damaged records were restored"
	case number == 0 && (bond.Now == 0 || !known.hasFiles): // the first use, or one by an earlier hmcfs
	case !bond.Fits(number):
		known.older = "they are a copy from another mount"
	}
	return nil
}

// tie records a new common number with the records and with the tier, by which the next
// run recognizes them.
func (st *startup) tie(ctx context.Context, t *content.Tier) error {
	before, err := t.Files.Number(bondNumber)
	if err != nil {
		return err
	}
	now := rand.Uint64()>>2 | 1
	if err = st.meta.SetDeviceBond(ctx, t.Name, metadata.Bond{Now: now, Before: before}); err != nil {
		return err
	}
	return t.Files.SetNumber(bondNumber, now)
}

// reconcile compares the files of the host tiers with the records, before objects can be
// made. A daemon that died leaves files of objects that were removed, or were being
// moved to or from another device: their record was removed first, or names the other
// device. Such files are removed if the records are certain to be those that the files
// were made with; otherwise a file may be all that is left of an object, and is set
// aside.
func (st *startup) reconcile(ctx context.Context) error {
	for _, t := range st.tiers {
		if t.Files == nil {
			continue
		}
		r := reconciliation{startup: st, tier: t, known: st.host[t]}
		err := r.compare(ctx)
		if err == nil {
			err = r.settle(ctx)
		}
		if err == nil {
			err = st.tie(ctx, t)
		}
		if err != nil {
			return fmt.Errorf("compare the host memory of %s with the records: %w", t.Name, err)
		}
		r.log()
	}
	st.meta.Settle()
	return nil
}

// reconciliation is the comparison of one tier.
type reconciliation struct {
	startup *startup
	tier    *content.Tier
	known   *hostRecords
	// ids are the numbers of the files, ascending.
	ids []uint64
	// strays are the files that belong to no record, revived the inodes that have a file
	// but whose records say that they are lost, and missing the inodes without their file.
	strays           []uint64
	revived, missing []Ino

	removed int
}

// compare finds the records and files that do not match.
func (r *reconciliation) compare(ctx context.Context) error {
	err := r.tier.Files.Each(func(id uint64) error {
		r.ids = append(r.ids, id)
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	slices.Sort(r.ids)
	at := 0
	err = r.startup.meta.WalkAll(ctx, func(in metadata.Inode, unreadable error) error {
		for at < len(r.ids) && r.ids[at] < uint64(in.Ino) {
			r.stray(r.ids[at])
			at++
		}
		there := at < len(r.ids) && r.ids[at] == uint64(in.Ino)
		if there {
			at++
		}
		if unreadable == nil { // an unreadable record is for fsck to repair, and its file stays
			r.classify(in, there)
		}
		return nil
	})
	for _, id := range r.ids[at:] {
		r.stray(id)
	}
	return err
}

// stray adds a file without a record, unless it is open without a name.
func (r *reconciliation) stray(id uint64) {
	if in, held := r.startup.nameless[Ino(id)]; !held || in.Device != r.tier.Name {
		r.strays = append(r.strays, id)
	}
}

// classify classifies one inode; there reports whether a file exists under its number.
func (r *reconciliation) classify(in metadata.Inode, there bool) {
	ours := in.IsRegular() && in.Device == r.tier.Name && in.Bound == metadata.Unbound
	lost := IsLost(in, r.tier.Epoch())
	switch {
	case ours && !lost && !there:
		r.missing = append(r.missing, in.Ino)
	case ours && lost && there && r.known.older == "":
		// It was truncated to 0, which made it live again, and the daemon died before its
		// record was written.
		r.revived = append(r.revived, in.Ino)
	case there && (!ours || lost):
		r.strays = append(r.strays, uint64(in.Ino))
	}
}

// settle acts on the findings of compare.
func (r *reconciliation) settle(ctx context.Context) error {
	for _, id := range r.strays {
		if err := errors.Join(ctx.Err(), r.removeStray(id)); err != nil {
			return err
		}
	}
	for _, ino := range r.missing {
		if err := r.markMissing(ctx, ino); err != nil {
			return err
		}
	}
	for _, ino := range r.revived {
		if err := r.startup.setEpoch(ctx, ino, r.tier.Epoch()); err != nil {
			return err
		}
	}
	return nil
}

// removeStray removes or sets aside one file. An empty file is always removed.
func (r *reconciliation) removeStray(id uint64) error {
	st, there, err := content.StatHostFile(r.tier, id)
	if err != nil || !there {
		return err
	}
	if r.known.older == "" || st.Size == 0 && st.Blocks == 0 {
		r.removed++
		return content.RemoveHostFile(r.tier, r.startup.engine, id)
	}
	sum := &r.startup.recovery
	sum.Aside++
	sum.AsideUsed += devices.Size(st.Blocks) * 512
	return r.tier.Files.SetAside(id)
}

// markMissing handles an object whose file is missing: it is lost. An earlier hmcfs made
// files only when they were first opened; if the records are of that time, the object
// gets an empty file.
func (r *reconciliation) markMissing(ctx context.Context, ino Ino) error {
	if !r.known.bonded && r.known.older == "" {
		h, err := content.CreateHostFile(r.tier, r.startup.engine, uint64(ino))
		if err != nil {
			return err
		}
		return h.Backing().Close()
	}
	r.startup.recovery.Missing++
	return r.startup.setEpoch(ctx, ino, r.tier.PastEpoch())
}

// setEpoch records the epoch that an inode's content is of.
func (st *startup) setEpoch(ctx context.Context, ino Ino, epoch metadata.Epoch) error {
	_, err := st.meta.Update(ctx, ino, func(in *metadata.Inode) error {
		in.Epoch = epoch
		return nil
	})
	return err
}

// log logs the result.
func (r *reconciliation) log() {
	s := r.startup
	if r.removed > 0 {
		s.log.Info("freed the host memory of removed objects", zap.Int("objects", r.removed))
	}
	s.recovery.Older = cmp.Or(r.known.older, s.recovery.Older)
}

// loseHost marks the objects of a host tier as lost whose files no longer exist, as
// after a reboot. Their records name no epoch as long as the files exist; now they get
// before, the epoch that they were in.
func (st *startup) loseHost(ctx context.Context, t *content.Tier, before metadata.Epoch) error {
	var gone []Ino
	err := st.meta.Walk(ctx, func(in metadata.Inode) error {
		if in.Device == t.Name && in.IsRegular() && in.Epoch == 0 && in.Bound == metadata.Unbound {
			gone = append(gone, in.Ino)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, ino := range gone {
		if err := st.setEpoch(ctx, ino, before); err != nil {
			return err
		}
	}
	st.log.Warn("host memory of an earlier run no longer exists; its objects are lost", zap.Int("objects", len(gone)))
	return nil
}

// adopt makes the device's directory, or finds the one of an earlier run, and records
// the device's present epoch.
//
// Files of a host tier that belong to other records are refused: this store would
// assign their numbers again, and new objects would contain old bytes.
func (st *startup) adopt(ctx context.Context, t *content.Tier, o Options) error {
	if t.Files != nil {
		if err := st.know(ctx, t); err != nil {
			return fmt.Errorf("adopt device %s: %w", t.Name, err)
		}
		st.meta.SetWitness(st.witnesses.Numbers)
	}
	if err := st.revive(ctx, t); err != nil {
		return fmt.Errorf("adopt device %s: %w", t.Name, err)
	}
	before, err := st.meta.DeviceEpoch(ctx, t.Name)
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		return fmt.Errorf("adopt device %s: %w", t.Name, err)
	}
	root, err := st.meta.EnsureDevice(ctx, t.Name, o.DirMode, o.UID, o.GID)
	if err != nil {
		return fmt.Errorf("adopt device %s: %w", t.Name, err)
	}
	t.Root = root.Ino
	if t.Files != nil && before != 0 && before != t.Epoch() {
		if err := st.loseHost(ctx, t, before); err != nil {
			return fmt.Errorf("adopt device %s: %w", t.Name, err)
		}
	}
	if err := st.meta.SetDeviceEpoch(ctx, t.Name, t.Epoch()); err != nil {
		return fmt.Errorf("adopt device %s: %w", t.Name, err)
	}
	st.log.Info("device adopted", zap.String("device", string(t.Name)),
		zap.Uint64("epoch", uint64(t.Epoch())), zap.Bool("same_epoch", before == t.Epoch()))
	return nil
}
