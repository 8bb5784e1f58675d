package objects

import (
	"context"
	"errors"
	"sync"

	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/objects/owner"
)

// Open recovers the state that the records of the devices describe, and starts the
// store. After an error, device memory that an earlier process has left is still kept, for
// the next Open.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	st := &startup{meta: o.Meta, engine: o.Engine, log: o.Logger.Named("objects"), host: map[*content.Tier]*hostRecords{}, nameless: o.Meta.Nameless(), orphans: map[Ino]orphan{}}
	for _, dev := range o.Devices {
		t, err := st.newTier(ctx, dev, o)
		if err != nil {
			return nil, errors.Join(err, st.tiers.close(true))
		}
		st.tiers = append(st.tiers, t)
		if err := st.adopt(ctx, t, o); err != nil {
			return nil, errors.Join(err, st.tiers.close(true))
		}
	}
	s := newStore(ctx, o, st.tiers)
	if err := s.recover(ctx, st, o); err != nil {
		err = errors.Join(err, s.owners.Close())
		s.work.Wait()
		return nil, errors.Join(err, s.table.releaseShared(), s.tiers.close(true))
	}
	s.recovery = st.recovery
	s.unclaimed.Lock()
	s.keeper, s.received = o.Keeper, st.received
	s.unclaimed.Unlock()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.startExpiry(background)
	s.startTrim(background)
	s.startAbsences(background)
	if s.lasting {
		s.receipts.start(background, s.work)
	}
	return s, nil
}

// newStore makes the parts of a store, each from the ones before it.
func newStore(ctx context.Context, o Options, ts tiers) *Store {
	meta, engine, log := o.Meta, o.Engine, o.Logger.Named("objects")
	work, owners := &sync.WaitGroup{}, owner.NewWatcher()
	ns := &notices{meta: meta}
	tb := &table{
		meta: meta, engine: engine, log: log, atime: o.Atime, tiers: ts, notices: ns,
		hole: make([]byte, 64<<10), shared: shared{files: map[owner.FileID]int{}},
	}
	tb.warner = tb.warn
	as := &attributes{meta: meta, log: log, tiers: ts, table: tb, notices: ns}
	ac := &access{meta: meta, tiers: ts}
	ix := &keyIndex{meta: meta, log: log, tiers: ts, table: tb}
	cl := &claims{meta: meta, index: ix, life: context.WithoutCancel(ctx), asking: map[spaced]int{}}
	ev := &events{claims: cl}
	rs := &receipts{meta: meta, log: log, known: map[string]struct{}{}}
	nm := &names{meta: meta, tiers: ts, table: tb, attrs: as, events: ev, receipts: rs}
	ch := &changes{notices: ns}
	ks := &keyed{
		meta: meta, log: log, attrs: as, access: ac, index: ix, claims: cl, events: ev, names: nm,
		changes: ch, expiry: expiry{wake: make(chan struct{}, 1)},
	}
	mv := &moves{meta: meta, log: log, tiers: ts, table: tb, names: nm}
	hs := &headers{table: tb, attrs: as, turn: NewLane(parsers)}
	return &Store{
		meta: meta, engine: engine, log: log, tiers: ts, notices: ns, table: tb, attrs: as, access: ac,
		index: ix, claims: cl, events: ev, names: nm, changes: ch, keyed: ks,
		bindings: &bindings{
			meta: meta, engine: engine, log: log, owners: owners, guard: o.Guard, work: work, tiers: ts,
			table: tb, attrs: as, access: ac, events: ev, names: nm, changes: ch, keyed: ks,
			absences: newAbsences(o.Absent),
		},
		exports: &exports{owners: owners, work: work, table: tb, attrs: as, headers: hs},
		moves:   mv,
		publications: &publications{
			meta: meta, log: log, tiers: ts, table: tb, claims: cl, events: ev, names: nm, moves: mv,
		},
		headers: hs, work: work, owners: owners, lasting: o.Keeper != nil, receipts: rs,
	}
}

// recover handles the state of an earlier run that depends on other processes or was
// left unfinished.
func (s *Store) recover(ctx context.Context, st *startup, o Options) error {
	if err := st.clearPublished(ctx, o, s.bindings); err != nil {
		return err
	}
	if err := s.receipts.load(ctx, o.Absent > 0); err != nil { // with those of clearPublished
		return err
	}
	if err := s.bindings.rebind(ctx); err != nil {
		return err
	}
	if err := s.redoAll(ctx, st); err != nil {
		return err
	}
	if err := st.reconcile(ctx); err != nil {
		return err
	}
	if err := s.adoptOrphans(ctx, st); err != nil || o.Resumes {
		return err
	}
	s.publications.removeReceived(ctx, st.received)
	st.received = nil
	return nil
}

// CloseOptions are the options of Close.
type CloseOptions struct {
	// Keep writes the records of all objects still in use. Without it they are left as they
	// are, for a caller that discards the metadata.
	Keep bool
	// Leave is for a start that has failed: device memory that is kept, and the files that an
	// earlier process had open without a name, stay for the store that follows.
	Leave bool
}

// Close frees the device memory. The store must not be used any more.
func (s *Store) Close(ctx context.Context, o CloseOptions) error {
	s.bindings.absences.end() // what follows may wait for their readers
	for h := range s.holders.Range {
		if h, ok := h.(*Holder); ok {
			h.end(ctx)
		}
	}
	if !o.Leave {
		s.ReleaseUnclaimed(ctx)
	}
	s.stop()
	s.events.close()
	errs := []error{s.owners.Close()}
	s.work.Wait()
	if o.Keep {
		errs = append(errs, s.table.saveAll(ctx))
	}
	if !o.Leave {
		s.table.endOrphans()
	}
	return errors.Join(append(errs, s.table.releaseShared(), s.tiers.close(o.Leave))...)
}
