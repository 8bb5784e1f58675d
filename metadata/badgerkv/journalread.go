package badgerkv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"

	"github.com/dgraph-io/badger/v4/y"
)

// errJournal reports that a journal can't be trusted.
var errJournal = errors.New("badgerkv: damaged journal")

// empty reports whether there are no commits.
func (j *journal) empty() bool {
	return wordAt(j.page, endAt).Load() == 0 && wordAt(j.page, endAt+8).Load() == 0
}

// first returns the half with the earlier commits.
func (j *journal) first() int {
	if j.number(orderAt, 1) < j.number(orderAt, 0) {
		return 1
	}
	return 0
}

// formatVersion returns the version of a journal that is not empty. Its numbers are whole if it is JournalVersion.
//
// Errors: errJournal if the page of numbers is damaged.
func (j *journal) formatVersion() (version int, err error) {
	magic, sum := j.page[:len(journalMagic)], binary.LittleEndian.Uint32(j.page[headSumAt:])
	good := sum == crc32.Checksum(j.page[:headSumAt], y.CastagnoliCrcTable)
	at := len(journalMagic) - len("3\n") // where the version is
	some := bytes.HasPrefix(magic, []byte(journalMagic[:at])) && magic[at+1] == '\n'
	switch version = int(magic[at]) - '0'; {
	case some && version != JournalVersion && (good || sum == 0 || version < sealedVersion && j.unsealed()):
		return version, nil
	case !some || version != JournalVersion || !good:
		return 0, fmt.Errorf("%w: the checksum of its head is wrong", errJournal)
	}
	for _, at := range []int{journalVersionAt, leastVersionAt, orderAt, orderAt + 8, endAt, endAt + 8} {
		if _, ok := unseal(wordAt(j.page, at).Load()); !ok {
			return 0, fmt.Errorf("%w: the checksum of the number at byte %d is wrong", errJournal, at)
		}
	}
	return version, nil
}

// unsealed reports whether the sizes of the halves are numbers of the versions before sealedVersion. These take over the file of a
// later one, and leave the checksum of its head there.
func (j *journal) unsealed() bool {
	for _, at := range []int{endAt, endAt + 8} {
		n := wordAt(j.page, at).Load()
		if _, sealed := unseal(n); n > journalHalf || n > 0 && sealed {
			return false
		}
	}
	return true
}

// fits reports whether a journal of this version continues records, in which Badger's last commit has a version.
// They may have been replaced, also by an older copy, or changed by a program without a journal. After a crash of the machine
// only some pages of a journal on a disk may be there.
func (j *journal) fits(stamp, version uint64) bool {
	boot := bootToken()
	return bytes.Equal(j.page[bootAt:][:len(boot)], boot[:]) && wordAt(j.page, stampAt).Load() == stamp &&
		j.number(leastVersionAt, 0) <= version && version <= j.number(journalVersionAt, 0)
}

// commits returns the commits, in their order, up to one that is damaged (errJournal). The slices of a commit are part of
// the journal.
func (j *journal) commits() iter.Seq2[[]change, error] {
	return func(yield func([]change, error) bool) {
		first := j.first()
		for _, n := range []int{first, 1 - first} {
			for at, end := uint64(0), j.number(endAt, n); at < end; {
				writes, size, err := readCommit(j.half(n)[:min(end, journalHalf)], j.number(orderAt, n), at)
				if err != nil {
					yield(nil, fmt.Errorf("%w: the commit at byte %d: %w", errJournal, journalHead+uint64(n)*journalHalf+at, err))
					return
				}
				if !yield(writes, nil) {
					return
				}
				at += size
			}
		}
	}
}

// check returns the number of commits before one that is damaged.
//
// Errors: errJournal if there is one.
func (j *journal) check() (commits int, err error) {
	for _, err := range j.commits() {
		if err != nil {
			return commits, err
		}
		commits++
	}
	return commits, nil
}

var (
	errCommitLength   = errors.New("its length is wrong")
	errCommitChecksum = errors.New("its checksum is wrong")
	errCommitContent  = errors.New("its content is no changes")
)

// readCommit returns the commit at an offset of the used part of a half, which has an order, and its size there.
func readCommit(half []byte, order, at uint64) (writes []change, size uint64, err error) {
	if at > uint64(len(half)) || uint64(len(half))-at < commitHead {
		return nil, 0, errCommitLength
	}
	record := half[at:]
	if size = commitHead + uint64(binary.LittleEndian.Uint32(record[lengthAt:])); size > uint64(len(record)) {
		return nil, 0, errCommitLength
	}
	record = record[:size:size]
	if placed(contentSum(record), order, at) != binary.LittleEndian.Uint32(record[sumAt:]) {
		return nil, 0, errCommitChecksum
	}
	rest := journalReader{data: record[commitHead:]}
	if writes = rest.changes(); rest.bad || len(rest.data) > 0 {
		return nil, 0, errCommitContent
	}
	return writes, size, nil
}

// journalReader reads the content of a commit.
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

func (r *journalReader) changes() (writes []change) {
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		key, what := r.uvarint(), r.uvarint()
		writes = append(writes, change{key: r.take(key), value: r.take(what >> 1), deleted: what&1 == 1})
	}
	return writes
}
