package badgerkv

import (
	"cmp"
	"errors"
	"os"

	"go.uber.org/zap"
)

const (
	// memTableSize is the size, in bytes, at which a memtable becomes a table. It limits a
	// transaction to 15 % of that, which must be enough for a value of maxValue.
	memTableSize = 8 << 20
	// earlierMemTableSize is the size in earlier versions, which leave longer logs.
	earlierMemTableSize = 16 << 20
	// tableSize is the size, in bytes, of the tables that compactions write. Up to 13 are
	// built in memory at a time, where a value of 64 KiB takes three times its size.
	tableSize = 1 << 20
	cacheSize = 16 << 20
	// maxValue bounds the size of values. It is Badger's own bound for values that are
	// stored outside of the value log.
	maxValue     = 1 << 20
	valueLogSize = 1 << 20
)

// Options configure Open.
type Options struct {
	// Dir is the directory; it is created with mode 0700 if it does not exist.
	Dir string
	// Reserve is the number of free bytes in the directory's file system that are withheld
	// from changes that check Room: removals and Close need them. 0 disables the reserve.
	Reserve uint64
	// Witness is the path of a file outside of Dir that records which commits were
	// acknowledged, so that an older copy of Dir is recognized as one. It must survive the
	// process but not the machine, like the memory that the records describe. It is created
	// if missing, and Close leaves it in place; empty means no such file.
	Witness string
	// LookOnly makes Open read Witness, but not create or change it.
	LookOnly bool
	// Journal is a file outside of Dir with the changes that the records in Dir do not have yet: the next
	// Open writes them. With it no change waits for Badger. Like the Witness it must survive the process but
	// not the machine. Open sets its size, allocates its blocks, and leaves it open; nil is none.
	Journal *os.File
	// MendJournal makes Open use the changes of a damaged Journal before the damage, and drop the others. Without it
	// Open refuses such a Journal.
	MendJournal bool
	// Logger receives Badger's messages; nil discards them.
	Logger *zap.Logger

	// readAt reads the inspected files; nil means os.File.ReadAt.
	readAt readerAt
}

// DefaultReserve is the default of --reserve, in bytes: enough for the tables of the logs
// that may be waiting, and for two more logs.
const DefaultReserve = 64 << 20

// Validate reports every fault of the options.
func (o *Options) Validate() error {
	if o.Dir == "" {
		return errors.New("badgerkv: no directory given")
	}
	return nil
}

// EnsureDefaults fills in the fields that were left out.
func (o *Options) EnsureDefaults() {
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	if o.readAt == nil {
		o.readAt = (*os.File).ReadAt
	}
}
