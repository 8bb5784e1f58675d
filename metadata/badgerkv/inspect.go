package badgerkv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dustin/go-humanize"
)

const (
	tableSuffix    = ".sst"
	valueLogSuffix = ".vlog"
	registryFile   = badger.KeyRegistryFileName
)

// records describes a store's directory after it was read completely.
type records struct {
	dir  string
	read readerAt
	// fresh is set if there are no records yet.
	fresh bool
	// files are the names of the files in the directory.
	files []string
	// logs are the logs that contain a commit or a torn end, oldest first.
	logs   []*logScan
	listed []tableScan // the tables that the manifest lists
	others []tableScan // all other tables
	// useless are files without records that Badger would fail on.
	useless []string
	// highest is the version of the last commit found.
	highest uint64
	// inside and outside are the witnesses; nil if missing.
	inside, outside *witness
	boot            token
	id              token
	// was is the ID of the store that the outside witness describes, if this store was
	// restored from that one and the witness has not been updated since.
	was token
	// acknowledged is the highest acknowledged version; sure reports whether it is known.
	acknowledged uint64
	sure         bool
	// cut is set if data after the last complete commit is discarded, or is missing.
	cut bool
	// damage lists the faults found, in plain words.
	damage []string
}

func (r *records) damaged(format string, args ...any) {
	r.damage = append(r.damage, fmt.Sprintf(format, args...))
}

// inspect reads a store's directory completely, and changes nothing. The error is one of
// the operating system; faults of the records are in the damage of the result.
//
// Records are complete if each acknowledged commit is in a table that the manifest lists or
// in a log. Versions number the commits without a gap, tables are written in their order,
// and the last version is kept in the tables (see txn.commit). So the highest version in
// the listed tables, the versions of the logs and the witness must join without a gap.
func inspect(o Options) (*records, error) {
	r := &records{dir: o.Dir, read: o.readAt, boot: bootToken()}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		r.files = append(r.files, e.Name())
	}
	if r.fresh = noRecords(r.files); r.fresh {
		return r, nil
	}
	if err := errors.Join(r.readWitnesses(o.Witness), r.readManifest(), r.readLogs(), r.readValueLogs(), r.readRegistry()); err != nil {
		return nil, err
	}
	r.assess()
	return r, nil
}

// noRecords reports whether the names are those of a directory without records.
func noRecords(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return name != pidFile && name != badger.ManifestFilename+"-REWRITE" && name != witnessFile+".new"
	})
}

// readWitnesses determines which commits were acknowledged.
func (r *records) readWitnesses(outside string) (err error) {
	if r.inside, err = r.read.witness(filepath.Join(r.dir, witnessFile)); err != nil {
		return err
	}
	if outside != "" {
		if r.outside, err = r.read.witness(outside); err != nil {
			return err
		}
	}
	now := func(w *witness) bool { return w != nil && w.boot == r.boot && r.boot != token{} }
	if r.outside != nil && (!now(r.outside) || r.outside.dir != nameOf(r.dir)) {
		r.outside = nil // it describes another directory, or memory that no longer exists
	}
	if in := r.inside; in != nil && r.outside != nil {
		switch r.outside.id {
		case in.id:
		case in.was:
			r.was, r.outside = in.was, nil
		default:
			r.damaged("these are not the records that were here last, according to %s", outside)
		}
	}
	for _, w := range []*witness{r.outside, r.inside} {
		if w == nil {
			continue
		}
		r.id = w.id
		r.cut = r.cut || w.cut
		if now(w) && w.sure {
			r.acknowledged, r.sure = max(r.acknowledged, w.version), true
		}
	}
	return nil
}

// readManifest reads the manifest and the tables.
func (r *records) readManifest() error {
	listed := map[uint64]badger.TableManifest{}
	f, err := os.Open(filepath.Join(r.dir, badger.ManifestFilename))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.damaged("%s is missing", badger.ManifestFilename)
	case err != nil:
		return err
	default:
		m, _, err := badger.ReplayManifestFile(f, 0, badger.Options{})
		_ = f.Close() // only read
		if err != nil {
			r.damaged("%s: %v", badger.ManifestFilename, err)
		}
		listed = m.Tables
	}
	var ids, others []uint64
	for _, name := range r.files {
		id, ok := table.ParseFileID(name)
		if !ok || !strings.HasSuffix(name, tableSuffix) {
			continue
		}
		if _, ok := listed[id]; !ok {
			others = append(others, id)
		}
	}
	for id := range listed {
		ids = append(ids, id)
	}
	r.listed, r.others = r.read.verifyTables(r.dir, ids), r.read.verifyTables(r.dir, others)
	for _, t := range r.listed {
		switch {
		case errors.Is(t.err, fs.ErrNotExist):
			r.damaged("table %s is missing", t.name())
		case t.err != nil:
			r.damaged("table %s: %v", t.name(), t.err)
		}
		r.highest = max(r.highest, t.high)
	}
	return nil
}

func (r *records) readLogs() error {
	numbers, err := numbersOfLogs(r.dir)
	if err != nil {
		r.damaged("%v", err)
		return nil
	}
	for _, n := range numbers {
		l, err := r.read.log(filepath.Join(r.dir, logName(n)), r.id.stamp())
		if err != nil {
			return err
		}
		l.number, l.name = n, logName(n)
		if l.unread > 0 {
			r.damaged("log %s: %v", l.name, unreadable(l.unread))
		}
		if l.keyed {
			r.damaged("log %s: its header was not written by hmcfs", l.name)
		}
		if l.size < logHeader {
			r.useless = append(r.useless, l.name)
		}
		if l.first > 0 || l.torn() {
			r.logs = append(r.logs, l)
		}
	}
	return nil
}

// readValueLogs finds value logs that Badger would fail on. Those of this store are empty.
func (r *records) readValueLogs() error {
	for _, name := range r.files {
		if filepath.Ext(name) != valueLogSuffix {
			continue
		}
		c, err := r.read.written(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		if len(c.data) > logHeader {
			if _, ok := parseEntry(c.data[logHeader:]); ok {
				continue
			}
		}
		if c.size < logHeader || len(c.data) >= logHeader && binary.BigEndian.Uint64(c.data) != 0 {
			r.useless = append(r.useless, name)
		}
	}
	return nil
}

// readRegistry checks whether Badger can read its key registry. This store's registry has
// no keys, so that it can be replaced by a new one.
func (r *records) readRegistry() error {
	const start, text = 16, "Hello Badger"
	c, err := r.read.file(filepath.Join(r.dir, registryFile), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && (len(c.data) != start+len(text) || !bytes.Equal(c.data[start:], []byte(text))) {
		r.useless = append(r.useless, registryFile)
	}
	return err
}

// assess decides whether the versions found are complete. It does so only if no damage was
// found before, since without all tables they can't be.
func (r *records) assess() {
	if len(r.damage) > 0 {
		return
	}
	inTables := r.highest
	r.assessLogs()
	for _, t := range r.others {
		if t.err == nil && t.high > r.highest {
			r.damaged("table %s has commits up to %d, and %s does not list it", t.name(), t.high, badger.ManifestFilename)
		}
	}
	why := ""
	if len(r.logs) > 0 {
		why = r.lastLog().why()
	}
	switch {
	case r.sure && r.highest < r.acknowledged:
		if why == "" && r.highest == inTables {
			why = ": a log, or a part of " + badger.ManifestFilename + ", is missing or outdated"
		} else if why == "" {
			why = ": the last log is missing or outdated"
		}
		r.damaged("commits %s were acknowledged and are missing%s", span(r.highest+1, r.acknowledged), why)
	case !r.sure && why != "" && r.lastLog().behind(r.lastLog().end) > 0:
		r.damaged("%s", strings.TrimPrefix(why, ": "))
	case !r.sure && r.inside != nil && r.inside.sure && r.highest < r.inside.version:
		r.cut = true // the machine crashed before everything was written
	}
}

// lastLog returns the newest log with content.
func (r *records) lastLog() *logScan { return r.logs[len(r.logs)-1] }

// assessLogs finds gaps between the commits in the tables and those in the logs, and from
// one log to the next.
func (r *records) assessLogs() {
	known := r.inside != nil || r.outside != nil
	var before *logScan
	for _, l := range r.logs {
		missing := span(r.highest+1, l.first-1)
		switch {
		case l.first == 0:
		case before != nil && l.first <= before.last:
			r.damaged("logs %s and %s hold the same commits", before.name, l.name)
		case l.first > r.highest+1 && before != nil:
			r.damaged("commits %s between logs %s and %s are missing%s", missing, before.name, l.name, before.why())
		case l.first > r.highest+1 && known:
			r.damaged("commits %s before log %s are missing: a table, a log or a part of %s was lost%s", missing, l.name, badger.ManifestFilename, l.earlier())
		}
		r.highest = max(r.highest, l.last)
		// If all acknowledged commits are known to be present, the log is complete,
		// whatever follows.
		r.cut = r.cut || l.torn() && !r.sure
		if l.first > 0 || before == nil {
			before = l
		}
	}
}

// why explains why a log ends before its last byte.
func (l *logScan) why() string {
	if !l.torn() {
		return ""
	}
	return fmt.Sprintf(": log %s has a bad record at %d, followed by %s with %d ends of commits",
		l.name, l.end, humanize.IBytes(uint64(l.used-l.end)), l.behind(l.end))
}

// earlier explains that a log may come from an earlier hmcfs, which did not have each
// commit leave its version in the tables: then nothing need be missing before the log.
func (l *logScan) earlier() string {
	if l.stamp != 0 {
		return ""
	}
	return ", or an earlier hmcfs has used these records since"
}

// span formats a range of versions.
func span(from, to uint64) string {
	if from == to {
		return fmt.Sprint(from)
	}
	return fmt.Sprintf("%d–%d", from, to)
}

// err returns the error that Open reports for damaged records; nil if they are complete.
func (r *records) err() error {
	if len(r.damage) == 0 {
		return nil
	}
	return &CorruptError{Dir: r.dir, Err: fmt.Errorf("damaged, and left unchanged: %s", strings.Join(r.damage, "; "))}
}
