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

// Salvaged tells what became of damaged records.
type Salvaged struct {
	// Aside is the directory that has the damaged records now, as they were.
	Aside string
	// Damage says what was wrong, and Gone what could not be brought back; RepairReport
	// in Aside has both.
	Damage, Gone []string
	// Records counts those that were brought back.
	Records int
}

// kept is the newest version of a record.
type kept struct {
	version uint64
	meta    byte
	value   []byte
}

// salvage collects what can be read.
type salvage struct {
	found   *records
	newest  map[string]kept
	commits map[uint64]bool // whole, in logs
	gone    []string
}

// Salvage puts a store of what can be read in place of one that was refused, by Open or
// by the reader of the records. It renames the directory of that one, and holds all records
// in memory. mend is given the new store before it takes the place, and returns what it
// could not keep; nil does nothing. The answer is nil when nothing is damaged and refused
// is nil.
//
// Where the newest version of a record is lost, an older one may take its place.
//
// Errors: ErrLocked (a *LockedError), what the operating system says, and mend's; then
// nothing has changed. When the new store can't be renamed the next Open does that.
func Salvage(ctx context.Context, opts Options, refused error, mend Mender) (out *Salvaged, err error) {
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
		return nil, fmt.Errorf("put the mended records in place: %w", err)
	}
	return &Salvaged{Aside: aside, Damage: found.damage, Gone: s.gone, Records: len(s.newest)}, nil
}

// Mender changes a store so that its records fit together, and returns what it could not
// keep, in plain words.
type Mender func(context.Context, metadata.KV) (gone []string, err error)

// RepairReport is a file among the damaged records that a repair has put aside. It has
// what was damaged and what is gone, a line each: a process that is killed behind the
// repair has told nobody.
const RepairReport = "REPAIR.txt"

// writeReport writes the report into the damaged records.
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

// A store that a repair makes has one suffix while it is built, and the other when it
// is whole, until it takes the place of the damaged one.
const (
	mendingSuffix = ".mending"
	mendedSuffix  = ".mended"
)

// finishRepair puts a mended store in its place if the damaged one has left it: the
// process that repaired was killed in between.
func finishRepair(dir string) error {
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(dir+mendedSuffix, dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// dropRepair removes what a repair has left that did not come to an end. The directory
// of the store is locked, so that no repair is under way.
func dropRepair(dir string) error {
	return errors.Join(os.RemoveAll(dir+mendingSuffix), os.RemoveAll(dir+mendedSuffix))
}

// freeName returns a name for damaged records.
func freeName(dir string) (string, error) {
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s.damaged-%d", dir, n)
		if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
	}
}

// takePlace puts a store that is built in place of the damaged one, and returns where
// that is.
func takePlace(dir string) (aside string, err error) {
	if aside, err = freeName(dir); err != nil {
		return "", err
	}
	if err = os.Rename(dir+mendingSuffix, dir+mendedSuffix); err == nil {
		err = os.Rename(dir, aside)
	}
	if err == nil {
		err = os.Rename(dir+mendedSuffix, dir)
	}
	return aside, err
}

// keep takes an entry unless a newer one of its key is there.
func (s *salvage) keep(e entry) {
	key, version := e.key[:len(e.key)-8], e.version()
	if old, ok := s.newest[string(key)]; ok && old.version >= version {
		return
	}
	s.newest[string(key)] = kept{version, e.meta, slices.Clone(e.value)}
}

// readTables reads those that the manifest lists or, where they are not all there,
// all.
func (s *salvage) readTables() error {
	tables := s.found.listed
	if broken := func(t tableScan) bool { return t.err != nil }; slices.ContainsFunc(tables, broken) ||
		len(tables) == 0 || slices.ContainsFunc(s.found.others, func(t tableScan) bool { return t.high > s.found.listedTo() }) {
		tables = slices.Concat(tables, s.found.others)
	}
	for _, t := range tables {
		data, _, err := s.found.read.file(filepath.Join(s.found.dir, t.name()), nil)
		if errors.Is(err, os.ErrNotExist) {
			s.gone = append(s.gone, fmt.Sprintf("table %s: all of it", t.name()))
			continue
		}
		if err != nil {
			return err
		}
		lost, total := salvageTable(data, s.keep)
		switch {
		case total < 0:
			s.gone = append(s.gone, fmt.Sprintf("table %s: the last %d of %d bytes", t.name(), lost, len(data)))
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

// readLog reads a log past its bad records.
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
		// What is there of the commit in whose middle the bad record is.
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

// missing tells which commits are in no table and in no log.
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

// batchBytes and batchKeys bound what is written to a mended store at once.
const (
	batchBytes = 512 << 10
	batchKeys  = 4096
)

// build makes a store of what was read.
func (s *salvage) build(ctx context.Context, dir string, mend Mender) error {
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
		return errors.Join(err, errors.New("the witness of the mended records is gone"))
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

// write puts the records of some keys into a store, all or none of them.
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
