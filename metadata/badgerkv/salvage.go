package badgerkv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/metadata"
)

// Salvaged reports the result of a repair of damaged records.
type Salvaged struct {
	// Aside is the directory to which the damaged records were moved, unchanged.
	Aside string
	// Damage lists the faults found, and Gone the data that could not be restored;
	// RepairReport in Aside contains both.
	Damage, Gone []string
	// Records counts the restored records.
	Records int
}

// kept is the newest version of a record found.
type kept struct {
	version uint64
	meta    byte
	value   []byte
}

// salvage collects the readable records.
type salvage struct {
	found   *records
	newest  map[string]kept
	commits map[uint64]bool // complete ones in logs
	gone    []string
}

// Salvage replaces a store that was refused, by Open or by the reader of the records, with
// a new store of the readable records. It renames the directory of the damaged store, and
// holds all records in memory. Before the replacement, mend makes the records of the new
// store consistent and returns descriptions, in plain words, of what it could not keep; nil
// means no such step. The result is nil if nothing is damaged and refused is nil.
//
// If the newest version of a record is lost, an older one may be restored.
//
// Errors: ErrLocked (a *LockedError), those of the operating system, and mend's; in these
// cases nothing has changed. If the new store can't be renamed, the next Open does it.
func Salvage(ctx context.Context, opts Options, refused error,
	mend func(context.Context, metadata.KV) (gone []string, err error),
) (out *Salvaged, err error) {
	opts.EnsureDefaults()
	lock, err := lockDir(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("lock store: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	found, err := inspect(opts)
	if err != nil {
		return nil, err
	}
	if found.err() == nil {
		if refused == nil {
			return nil, nil
		}
		found.damaged("%v", refused)
	}
	s := &salvage{found: found, newest: map[string]kept{}, commits: map[uint64]bool{}}
	if err = s.readTables(); err != nil {
		return nil, err
	}
	for _, l := range found.logs {
		s.readLog(l)
	}
	s.missing()
	if err = s.build(ctx, opts.Dir+mendingSuffix, mend); err == nil {
		err = s.writeReport()
	}
	if err != nil {
		return nil, errors.Join(err, dropRepair(opts.Dir))
	}
	aside, err := takePlace(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("move the repaired records into place: %w", err)
	}
	return &Salvaged{Aside: aside, Damage: found.damage, Gone: s.gone, Records: len(s.newest)}, nil
}

// RepairReport is a file that a repair adds to the damaged records it has moved aside. It
// lists the damage and the losses, one per line, in case the process is killed after the
// repair without having reported them.
const RepairReport = "REPAIR.txt"

// writeReport writes the report into the directory of the damaged records.
func (s *salvage) writeReport() error {
	var text strings.Builder
	for _, line := range s.found.damage {
		fmt.Fprintf(&text, "damaged: %s\n", line)
	}
	for _, line := range s.gone {
		fmt.Fprintf(&text, "gone: %s\n", line)
	}
	return os.WriteFile(filepath.Join(s.found.dir, RepairReport), []byte(text.String()), 0o600)
}

// keep records an entry unless a newer one of its key was found before.
func (s *salvage) keep(e entry) {
	key, version := e.key[:len(e.key)-8], e.version()
	if old, ok := s.newest[string(key)]; ok && old.version >= version {
		return
	}
	s.newest[string(key)] = kept{version, e.meta, slices.Clone(e.value)}
}

// readTables reads the tables that the manifest lists or, if they are incomplete, all
// tables.
func (s *salvage) readTables() error {
	tables := s.found.listed
	if broken := func(t tableScan) bool { return t.err != nil }; slices.ContainsFunc(tables, broken) ||
		len(tables) == 0 || slices.ContainsFunc(s.found.others, func(t tableScan) bool { return t.high > s.found.listedTo() }) {
		tables = slices.Concat(tables, s.found.others)
	}
	for _, t := range tables {
		c, err := s.found.read.file(filepath.Join(s.found.dir, t.name()), nil)
		if errors.Is(err, os.ErrNotExist) {
			s.gone = append(s.gone, fmt.Sprintf("table %s: all of it", t.name()))
			continue
		}
		if err != nil {
			return err
		}
		lost, total := salvageTable(c.data, s.keep)
		switch {
		case total < 0:
			s.gone = append(s.gone, fmt.Sprintf("table %s: the last %d of %d bytes", t.name(), lost, len(c.data)))
		case lost > 0:
			s.gone = append(s.gone, fmt.Sprintf("table %s: %d of %d blocks", t.name(), lost, total))
		}
	}
	return nil
}

// listedTo returns the highest version in the tables that the manifest lists.
func (r *records) listedTo() (high uint64) {
	for _, t := range r.listed {
		high = max(high, t.high)
	}
	return high
}

// readLog reads a log, skipping its bad records.
func (s *salvage) readLog(l *logScan) {
	at, above := logHeader, uint64(0)
	for {
		at = l.replay(at, above, func(commit []entry, _ int) {
			above = commit[0].version()
			s.commits[above] = true
			for _, e := range commit {
				s.keep(e)
			}
		})
		next := l.resume(at)
		if next < 0 {
			return
		}
		// Keep the readable entries of the commit that contains the bad record.
		for at = next; at < len(l.data); {
			e, ok := parseEntry(l.data[at:])
			if !ok {
				break
			}
			at += e.size
			if e.meta&bitFinTxn != 0 {
				above = max(above, e.version())
				break
			}
			s.keep(e)
		}
	}
}

// missing reports the commits that are in no table and in no log.
func (s *salvage) missing() {
	next := s.found.listedTo() + 1
	for _, t := range s.found.others {
		next = max(next, t.high+1)
	}
	lost := func(to uint64) {
		if next <= to {
			s.gone = append(s.gone, fmt.Sprintf("%d commits: %s", to-next+1, span(next, to)))
		}
	}
	for _, v := range slices.Sorted(maps.Keys(s.commits)) {
		if v >= next {
			lost(v - 1)
			next = v + 1
		}
	}
	lost(s.found.acknowledged)
	if len(s.gone) > 0 {
		return
	}
	for _, l := range s.found.logs {
		if l.torn() && !s.found.sure {
			s.gone = append(s.gone, fmt.Sprintf("the end of log %s", l.name))
		}
	}
}

// batchBytes and batchKeys bound the size of one write to a repaired store.
const (
	batchBytes = 512 << 10
	batchKeys  = 4096
)

// build creates a store of the salvaged records.
func (s *salvage) build(ctx context.Context, dir string, mend func(context.Context, metadata.KV) ([]string, error)) error {
	kv, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		return err
	}
	maps.DeleteFunc(s.newest, func(key string, k kept) bool { return k.meta&bitDelete != 0 || key == markKey || key[0] == '!' })
	keys := slices.Sorted(maps.Keys(s.newest))
	for len(keys) > 0 && err == nil {
		n, bytes := 0, 0
		for n < min(len(keys), batchKeys) && bytes < batchBytes {
			bytes += len(keys[n]) + len(s.newest[keys[n]].value)
			n++
		}
		err = s.write(ctx, kv, keys[:n])
		keys = keys[n:]
	}
	if err == nil && mend != nil {
		var gone []string
		gone, err = mend(ctx, kv)
		s.gone = append(s.gone, gone...)
	}
	if err = errors.Join(err, kv.Close()); err != nil {
		return err
	}
	path := filepath.Join(dir, witnessFile)
	w, err := s.found.read.witness(path)
	if err != nil || w == nil {
		return errors.Join(err, errors.New("the witness of the repaired records is missing"))
	}
	w.cut, w.was = true, s.found.id
	switch {
	case s.found.outside != nil:
		w.was = s.found.outside.id
	case s.found.was != token{}:
		w.was = s.found.was
	}
	return writeWitness(path, w)
}

// write stores the records of some keys, atomically.
func (s *salvage) write(ctx context.Context, kv *KV, keys []string) error {
	return kv.Update(ctx, func(tx metadata.KVTxn) error {
		for _, key := range keys {
			if err := tx.Set([]byte(key), s.newest[key].value); err != nil {
				return err
			}
		}
		return nil
	})
}
