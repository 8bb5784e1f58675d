package content

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/devices/memfd"
	"github.com/hmcfs/hmcfs/metadata"
)

// Facts are the values of an object in device memory that may be newer than its record's.
type Facts struct {
	Size                uint64
	Atime, Mtime, Ctime metadata.Timespec
	Epoch               metadata.Epoch
}

// keptTable has one entry for each object of a device whose memory outlives the process,
// in a file that is kept as the slabs are. The number of an entry, plus one, is the owner in
// the labels of the arena's pages.
//
//	header  16 words: what the table belongs to, and how many entries were ever used
//	entry   16 words: the inode, the state, and two copies of the facts
//	slabs   a list of the slabs that are kept, see keptSlabs
//
// The state says which copy is valid, so facts change with the one store of the state.
type keptTable struct {
	words memfd.Words
	epoch metadata.Epoch
	size  int // number of entries

	mu sync.Mutex
	// free are the entries below the header's number that are not in use.
	// +checklocks:mu
	free []int
	// rank is that of the last claim.
	// +checklocks:mu
	rank uint64
}

// The words of the header.
const (
	headMagic = iota
	headGeneration
	headDevice
	headFirstEpoch // the device's epoch in the records when the table was made
	headEpoch
	headSize
	headTop // entries from here on were never used
)

// KeptVersion is the version of the tables and labels that this program writes. It reads no other.
const KeptVersion = 1

const (
	keptMagic   = 0x686d636673<<versionBits | KeptVersion // "hmcfs", and the version
	versionBits = 24

	entryWords = 16
	factWords  = 7
)

// The words of an entry.
const (
	entryIno = iota
	entryState
	entryFacts
)

// The bits of an entry's state; its rank is above them.
const (
	stateUsed   = 1 << iota
	stateDirty  // the record is older than the entry and the labels
	stateSecond // the second copy of the facts is valid
	// Not all of the content is in labelled pages, or some of it has unknown bytes: then
	// the object is lost.
	stateLoose
	stateDamaged

	stateRank = 1 << 8
)

// spareEntries is the number of entries beyond one for each page, for objects without
// content that are in use.
const spareEntries = 1 << 16

// keptName returns the name under which the table of a device's objects is kept.
func keptName(device devices.Name) string { return arena.KeptPrefix(device) + "objects" }

// keptIdentity says which records and which device a table belongs to.
type keptIdentity struct {
	generation metadata.Generation
	// first is the device's epoch in the records, epoch that of the table.
	first, epoch metadata.Epoch
	device       uint64
	entries      int
}

// identify describes a device and its pages.
func identify(info devices.Info, page devices.Size) (device uint64, entries int) {
	h := fnv.New64a()
	fmt.Fprint(h, info.Name, "\x00", info.Family, "\x00", info.Model, "\x00", info.UUID, "\x00", info.Total, "\x00", info.MaxAlloc, "\x00", page)
	return h.Sum64(), int(info.Total/page) + spareEntries
}

func tableWords(entries int) int { return (entries+1)*entryWords + maxSlabs }

// newKeptTable makes an empty table and has it kept instead of one that was there.
func newKeptTable(keeper devices.DescriptorStore, device devices.Name, id keptIdentity) (*keptTable, error) {
	f, err := memfd.Create("hmcfs-objects", 8*int64(tableWords(id.entries)))
	if err != nil {
		return nil, err
	}
	kt, err := mapTable(f, id)
	if err == nil {
		for at, value := range map[int]uint64{
			headGeneration: uint64(id.generation), headDevice: id.device, headFirstEpoch: uint64(id.first),
			headEpoch: uint64(id.epoch), headSize: uint64(id.entries), headMagic: keptMagic,
		} {
			kt.words.At(at).Store(value)
		}
		if err = keeper.Keep(keptName(device), f); err != nil {
			err = errors.Join(err, kt.words.Unmap())
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("keep the state of %s: %w", device, err)
	}
	return kt, nil
}

// versionOf returns the version of a table; ok is false for another file.
func versionOf(f *os.File) (version uint64, ok bool) {
	var word [8]byte
	if _, err := f.ReadAt(word[:], headMagic); err != nil {
		return 0, false
	}
	magic := binary.NativeEndian.Uint64(word[:])
	return magic & (1<<versionBits - 1), magic>>versionBits == keptMagic>>versionBits
}

func mapTable(f *os.File, id keptIdentity) (*keptTable, error) {
	words, err := memfd.MapWords(f, 0, tableWords(id.entries))
	if err != nil {
		return nil, err
	}
	return &keptTable{words: words, epoch: id.epoch, size: id.entries}, nil
}

// openKeptTable opens the table of an earlier process, if it is one of these records and
// this device.
//
// Errors: ErrLost if it is not. A table of another version may be either, and the error is a different one.
func openKeptTable(f *os.File, id keptIdentity) (*keptTable, error) {
	if v, ok := versionOf(f); ok && v != KeptVersion {
		return nil, fmt.Errorf("it is of version %d, and this hmcfs reads version %d; mount with the hmcfs that wrote it, or with --no-hold, which frees it", v, KeptVersion)
	}
	if err := memfd.Check(f, 8*int64(tableWords(id.entries))); err != nil {
		return nil, errors.Join(ErrLost, err)
	}
	kt, err := mapTable(f, id)
	if err != nil {
		return nil, err
	}
	for _, want := range []struct {
		at    int
		value uint64
		what  string
	}{
		{headMagic, keptMagic, "it has ended, or is damaged"},
		{headGeneration, uint64(id.generation), "it belongs to other records"},
		{headDevice, id.device, "the device has changed"},
		{headSize, uint64(id.entries), "the device has changed"},
	} {
		if kt.words.At(want.at).Load() != want.value {
			return nil, errors.Join(fmt.Errorf("%s: %w", want.what, ErrLost), kt.words.Unmap())
		}
	}
	kt.epoch = metadata.Epoch(kt.words.At(headEpoch).Load())
	if top := kt.words.At(headTop).Load(); kt.epoch == 0 || top > uint64(kt.size) {
		return nil, errors.Join(fmt.Errorf("it is damaged: %w", ErrLost), kt.words.Unmap())
	}
	// The records have the later epoch once a process has started that continues it.
	if first := metadata.Epoch(kt.words.At(headFirstEpoch).Load()); id.first != first && id.first != kt.epoch {
		return nil, errors.Join(fmt.Errorf("the device was used without it: %w", ErrLost), kt.words.Unmap())
	}
	return kt, nil
}

// claim takes a free entry, for an object that is not known yet.
//
// Errors: devices.ErrOutOfMemory.
func (kt *keptTable) claim() (entry int, err error) {
	kt.mu.Lock()
	defer kt.mu.Unlock()
	top := int(kt.words.At(headTop).Load())
	switch last := len(kt.free) - 1; {
	case last >= 0:
		entry = kt.free[last]
		kt.free = kt.free[:last]
	case top < kt.size:
		entry = top
		kt.words.At(headTop).Store(uint64(top + 1))
	default:
		return 0, fmt.Errorf("the device has no room for the state of more than %d objects: %w", kt.size, devices.ErrOutOfMemory)
	}
	kt.word(entry, entryState).Store(stateUsed)
	return entry, nil
}

// release frees an entry that owns no pages.
func (kt *keptTable) release(entry int) {
	kt.word(entry, entryIno).Store(0)
	kt.word(entry, entryState).Store(0)
	kt.mu.Lock()
	defer kt.mu.Unlock()
	kt.free = append(kt.free, entry)
}

// nextRank returns a rank above all others: of two entries of one inode, the one with the
// higher rank is valid.
func (kt *keptTable) nextRank() uint64 {
	kt.mu.Lock()
	defer kt.mu.Unlock()
	kt.rank++
	return kt.rank
}
