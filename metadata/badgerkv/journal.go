package badgerkv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
)

// journal has the commits that Badger does not have yet, in a mapped file that outlives the process: the
// next one writes them. It is a page of numbers and two halves, one for the active layer and one
// for the frozen one. A commit counts once the number of bytes in its half includes it.
type journal struct {
	// page is replaced with KV.mu and KV.flushing held, when the file is made anew.
	page []byte
	// at is the half of the active layer. KV.mu guards it.
	at   int
	file journalFile
}

// JournalVersion is the version of the journals that this program writes. It reads no others. A change of the
// journal, or of what it takes for granted of the records, needs the next one.
const JournalVersion = 2

const (
	journalMagic = "hmcfs journal " + string(rune('0'+JournalVersion)) + "\n"
	// journalHalf is more than space admits at a time.
	journalHalf = memTableSize
	journalHead = 4096
	journalSize = journalHead + 2*journalHalf
	// The page has the stamp of the records that it belongs to, bounds for the version of Badger's last commit, the
	// boot of the machine, and for each half its place in the order and its bytes.
	stampAt, journalVersionAt, leastVersionAt, bootAt = 64, 72, 80, 88
	orderAt, endAt                                    = 128, 192
)

// errJournal reports that a journal can't be read.
var errJournal = errors.New("badgerkv: the journal is damaged")

// journalDropped is logged where there are commits, but not for these records.
const journalDropped = "the journal is of another version, or the records were replaced, truncated or changed without it; the changes in the journal are dropped"

// journalless is logged if there is no memory for the journal.
const journalless = "no room for the journal of the records: each change waits until it is written"

// openJournal maps the memory of a journal. Without room for its blocks (full) it returns a copy of one that has
// commits: a store to a page without a block, and with some file systems a look at it, would end the process.
func openJournal(f *os.File, log *zap.Logger) (j *journal, full, err error) {
	st, err := f.Stat()
	if err == nil && st.Size() != journalSize {
		if st.Size() > 0 {
			log.Warn(journalDropped, zap.Int64("bytes", st.Size()))
		}
		err = errors.Join(f.Truncate(0), f.Truncate(journalSize))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("journal of the records: %w", err)
	}
	if full = allocateJournal(f); full != nil {
		j, err = readJournal(f)
		return j, full, err
	}
	j = &journal{file: journalFile{path: f.Name()}}
	if j.page, st, err = mapJournal(f); err != nil {
		return nil, nil, fmt.Errorf("journal of the records: %w", err)
	}
	j.file.is.Store(&st)
	return j, nil, nil
}

// readJournal returns a copy of a journal; nil if it was never used.
func readJournal(f *os.File) (*journal, error) {
	st, err := f.Stat()
	if err != nil || st.Size() != journalSize {
		return nil, err
	}
	j := &journal{page: make([]byte, journalSize)}
	if _, err = f.ReadAt(j.page, 0); err != nil {
		return nil, fmt.Errorf("journal of the records: %w", err)
	}
	if !bytes.HasPrefix(j.page, []byte(journalMagic)) {
		return nil, nil //nolint:nilnil // there is none
	}
	return j, nil
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	if j.empty() {
		// Its memory is free until the next start, which finds zeros.
		_ = unix.Madvise(j.page, unix.MADV_REMOVE)
	}
	return unix.Munmap(j.page)
}

// number returns one of the numbers of a half.
func (j *journal) number(at, half int) uint64 { return wordAt(j.page, at+8*half).Load() }

func (j *journal) set(at, half int, n uint64) { wordAt(j.page, at+8*half).Store(n) }

// half returns the memory of a half.
func (j *journal) half(n int) []byte {
	return j.page[journalHead+n*journalHalf:][:journalHalf:journalHalf]
}

// fits reports whether the journal continues records, in which Badger's last commit has a version.
// They may have been replaced, also by an older copy, or changed by a program without a journal. After a crash of the machine
// only some pages of a journal on a disk may be there.
func (j *journal) fits(stamp, version uint64) bool {
	boot := bootToken()
	return bytes.HasPrefix(j.page, []byte(journalMagic)) && bytes.Equal(j.page[bootAt:][:len(boot)], boot[:]) &&
		j.number(stampAt, 0) == stamp && j.number(leastVersionAt, 0) <= version && version <= j.number(journalVersionAt, 0)
}

// empty reports whether there are no commits.
func (j *journal) empty() bool { return j.number(endAt, 0) == 0 && j.number(endAt, 1) == 0 }

// begin empties the journal, for the records with a stamp. If it is cut off, the journal is of no records.
func (j *journal) begin(stamp, version uint64) {
	j.set(stampAt, 0, 0)
	j.clear(0)
	j.clear(1)
	j.expect(version)
	j.set(leastVersionAt, 0, version)
	boot := bootToken()
	copy(j.page[bootAt:], boot[:])
	copy(j.page, journalMagic)
	j.set(stampAt, 0, stamp)
}

// expect records the version of Badger's next commit, before it is made.
func (j *journal) expect(version uint64) {
	if j != nil {
		j.set(journalVersionAt, 0, version)
	}
}

// clear empties a half, all commits of which Badger has.
func (j *journal) clear(half int) { j.set(endAt, half, 0) }

// freeze begins the half of a new layer, which is empty.
func (j *journal) freeze() {
	if j != nil {
		next := 1 - j.at
		j.set(orderAt, next, j.number(orderAt, j.at)+1)
		j.at = next
	}
}

// settled empties the half of the frozen layer, which Badger has up to a version.
func (j *journal) settled(version uint64) {
	if j != nil {
		j.set(leastVersionAt, 0, max(version, j.number(leastVersionAt, 0)))
		j.clear(1 - j.at)
	}
}

// add adds a commit, which then survives the process.
//
// Errors: metadata.ErrTooLarge.
func (j *journal) add(c *commit) error {
	if j == nil {
		return nil
	}
	end := j.number(endAt, j.at)
	room := j.half(j.at)[end:]
	if len(room) < len(c.record) {
		return fmt.Errorf("journal of the records: %w", metadata.ErrTooLarge)
	}
	copy(room, c.record)
	j.set(endAt, j.at, end+uint64(len(c.record)))
	return nil
}

// record appends a change to the record of its commit, and makes its key and value parts of that. The
// memory of the record suffices.
func (c *change) record(out []byte) []byte {
	what := uint64(len(c.value)) << 1
	if c.deleted {
		what = 1
	}
	out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(len(c.key))), what)
	at, value := len(out), len(out)+len(c.key)
	out = append(append(out, c.key...), c.value...)
	c.key, c.value = out[at:value:value], out[value:len(out):len(out)]
	return out
}

// each passes the commits on, in their order. The slices of a commit are part of the journal.
//
// Errors: errJournal; those of fn.
func (j *journal) each(fn func(writes []change) error) error {
	first := 0
	if j.number(orderAt, 1) < j.number(orderAt, 0) {
		first = 1
	}
	for _, n := range []int{first, 1 - first} {
		end := j.number(endAt, n)
		if end > journalHalf {
			return errJournal
		}
		for rest := (journalReader{data: j.half(n)[:end]}); len(rest.data) > 0; {
			writes := rest.commit()
			if rest.bad {
				return errJournal
			}
			if err := fn(writes); err != nil {
				return err
			}
		}
	}
	return nil
}

// journalReader reads the commits of a half.
type journalReader struct {
	data []byte
	bad  bool
}

func (r *journalReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.data)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.data = r.data[n:]
	return v
}

func (r *journalReader) take(n uint64) []byte {
	if n > uint64(len(r.data)) {
		r.bad = true
		return nil
	}
	out := r.data[:n:n]
	r.data = r.data[n:]
	return out
}

func (r *journalReader) commit() (writes []change) {
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		key, what := r.uvarint(), r.uvarint()
		writes = append(writes, change{key: r.take(key), value: r.take(what >> 1), deleted: what&1 == 1})
	}
	return writes
}

// resume writes the commits of a journal, which an earlier process had no time for, and goes on with
// it. If the process dies meanwhile, the next one does it again.
func (kv *KV) resume(ctx context.Context, f *os.File) error {
	j, full, err := openJournal(f, kv.log)
	if err != nil {
		return err
	}
	if full != nil {
		kv.log.Warn(journalless, zap.Error(full))
		return kv.resumeCopy(ctx, f, j)
	}
	kv.flushing.Lock()
	kv.expects = j // also by what the replay writes, or the next process would not replay the rest
	kv.flushing.Unlock()
	switch {
	case j.fits(kv.stamp, kv.lastCommit()) && !kv.Cut():
		err = kv.replay(ctx, j)
	case !j.empty():
		kv.log.Warn(journalDropped)
	}
	if err != nil {
		return fmt.Errorf("write the journal of the records: %w", err)
	}
	j.begin(kv.stamp, kv.lastCommit())
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.journal = j
	return nil
}

// resumeCopy writes the commits of the copy of a journal, nil for none, and frees the file, which is not used.
func (kv *KV) resumeCopy(ctx context.Context, f *os.File, j *journal) error {
	var err error
	switch {
	case j == nil:
	case j.fits(kv.stamp, kv.lastCommit()) && !kv.Cut():
		// Whatever the replay writes, it can be repeated.
		if _, err = f.WriteAt(bytes.Repeat([]byte{0xff}, 8), journalVersionAt); err == nil {
			err = kv.replay(ctx, j)
		}
	case !j.empty():
		kv.log.Warn(journalDropped)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err != nil {
		return fmt.Errorf("write the journal of the records: %w", err)
	}
	return nil
}

// replay writes the commits of a journal.
func (kv *KV) replay(ctx context.Context, j *journal) error {
	count := 0
	err := j.each(func(writes []change) error {
		count++
		return kv.UpdateSoon(ctx, func(tx metadata.KVTxn) error {
			for _, w := range writes {
				err := error(nil)
				if w.deleted {
					err = tx.Delete(w.key)
				} else {
					err = tx.Set(w.key, w.value)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
	if errors.Is(err, errJournal) {
		kv.log.Error("the journal of the records is damaged; changes that were just made are missing", zap.Int("commits", count))
		err = nil
	}
	if err == nil && count > 0 {
		err = kv.flush(math.MaxUint64)
		kv.log.Info("wrote changes of records that the process before had no time for", zap.Int("commits", count))
	}
	return err
}

// Unwritten returns the number of commits in a journal that the records do not have yet, whichever records these are.
//
// Errors: those of the operating system about the file.
func Unwritten(f *os.File) (commits int, err error) {
	j, err := readJournal(f)
	if j == nil {
		return 0, err
	}
	err = j.each(func([]change) error {
		commits++
		return nil
	})
	if errors.Is(err, errJournal) { // which ends what can be read
		err = nil
	}
	return commits, err
}

// lastCommit returns the version of Badger's last commit.
func (kv *KV) lastCommit() uint64 {
	tx := kv.db.NewTransaction(false)
	defer tx.Discard()
	return tx.ReadTs()
}
