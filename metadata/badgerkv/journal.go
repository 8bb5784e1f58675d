package badgerkv

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/dgraph-io/badger/v4/y"
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
const JournalVersion = 3

// sealedVersion is the first version of journals with checksums.
const sealedVersion = 3

const (
	journalMagic = "hmcfs journal " + string(rune('0'+JournalVersion)) + "\n"
	// journalHalf is more than space admits at a time.
	journalHalf = memTableSize
	journalHead = 4096
	journalSize = journalHead + 2*journalHalf
	// The page begins with what identifies the journal: its version, the stamp of the records that it belongs to, the boot
	// of the machine, and a checksum of these. The version and the checksum stay where they are in later versions.
	stampAt, bootAt, headSumAt = 16, 24, 40
	// Sealed numbers follow: bounds for the version of Badger's last commit, and for each half its place in the order and
	// its bytes.
	journalVersionAt, leastVersionAt = 64, 72
	orderAt, endAt                   = 128, 192
	// A commit begins with its length, without these, and a checksum.
	lengthAt, sumAt, commitHead = 0, 4, 8
)

// Logged where there are commits, but not for this program or these records.
const (
	journalForeign = "the journal of the records is of a version that this program does not read; the changes in it are dropped. " +
		"Next time, unmount with the program that wrote it first"
	journalDropped = "the records were replaced, truncated or changed without their journal; the changes in the journal are dropped"
)

// journalless is logged if there is no memory for the journal.
const journalless = "no room for the journal of the records: each change waits until it is written"

// openJournal maps the memory of a journal. Without room for its blocks (full) it returns a copy of one that has
// commits: a store to a page without a block, and with some file systems a look at it, would end the process.
//
// Errors: errJournal if its size is wrong; those of the operating system.
func openJournal(f *os.File) (j *journal, full, err error) {
	st, err := f.Stat()
	if err == nil && st.Size() != journalSize {
		if st.Size() > 0 {
			return nil, nil, fmt.Errorf("%w: it has %d bytes instead of %d", errJournal, st.Size(), journalSize)
		}
		err = f.Truncate(journalSize)
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
//
// Errors: errJournal if its size is wrong; those of the operating system.
func readJournal(f *os.File) (*journal, error) {
	st, err := f.Stat()
	switch {
	case err != nil || st.Size() == 0:
		return nil, err
	case st.Size() != journalSize:
		return nil, fmt.Errorf("%w: it has %d bytes instead of %d", errJournal, st.Size(), journalSize)
	}
	j := &journal{page: make([]byte, journalSize)}
	if _, err = f.ReadAt(j.page, 0); err != nil {
		return nil, fmt.Errorf("journal of the records: %w", err)
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

// number returns one of the numbers of a half; 0 if its checksum is wrong.
func (j *journal) number(at, half int) uint64 {
	n, ok := unseal(wordAt(j.page, at+8*half).Load())
	if !ok {
		return 0
	}
	return n
}

func (j *journal) set(at, half int, n uint64) { wordAt(j.page, at+8*half).Store(seal(n)) }

// half returns the memory of a half.
func (j *journal) half(n int) []byte {
	return j.page[journalHead+n*journalHalf:][:journalHalf:journalHalf]
}

// begin empties the journal, for the records with a stamp, which have all of it. The later half is emptied last: if this is cut
// off, its commits can be made again, and no others.
func (j *journal) begin(stamp, version uint64) {
	first := j.first()
	j.clear(first)
	j.clear(1 - first)
	order := max(j.number(orderAt, 0), j.number(orderAt, 1))
	j.set(orderAt, 0, order+1)
	j.set(orderAt, 1, order)
	j.expect(version)
	j.set(leastVersionAt, 0, version)
	boot := bootToken()
	copy(j.page, journalMagic)
	wordAt(j.page, stampAt).Store(stamp)
	copy(j.page[bootAt:], boot[:])
	binary.LittleEndian.PutUint32(j.page[headSumAt:], crc32.Checksum(j.page[:headSumAt], y.CastagnoliCrcTable))
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

// cut drops the commits of both layers behind a version. The later ones go first, so that a process which is killed meanwhile leaves
// no gap.
func (j *journal) cut(frozen, active *layer, version uint64) {
	if j != nil {
		j.set(endAt, j.at, active.recorded(version))
		j.set(endAt, 1-j.at, frozen.recorded(version))
	}
}

// add adds a commit, which then survives the process. Its record was signed.
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
	sum := binary.LittleEndian.Uint32(c.record[sumAt:])
	binary.LittleEndian.PutUint32(room[sumAt:], placed(sum, j.number(orderAt, j.at), end))
	j.set(endAt, j.at, end+uint64(len(c.record)))
	return nil
}

// sign completes the head of a record: its length, and the checksum of that and the content.
func sign(record []byte) {
	binary.LittleEndian.PutUint32(record[lengthAt:], uint32(len(record)-commitHead))
	binary.LittleEndian.PutUint32(record[sumAt:], contentSum(record))
}

// contentSum returns the checksum of a record without its place.
func contentSum(record []byte) uint32 {
	length := crc32.Checksum(record[lengthAt:sumAt], y.CastagnoliCrcTable)
	return crc32.Update(length, y.CastagnoliCrcTable, record[commitHead:])
}

// placed continues a checksum with the place of a commit: the order of its half, and its offset there. So a commit counts
// nowhere else.
func placed(sum uint32, order, offset uint64) uint32 {
	var place [16]byte
	binary.LittleEndian.PutUint64(place[:], order)
	binary.LittleEndian.PutUint64(place[8:], offset)
	return crc32.Update(sum, y.CastagnoliCrcTable, place[:])
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
