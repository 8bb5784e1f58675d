package badgerkv

import (
	"errors"
	"fmt"
	"strings"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
)

// ErrLocked reports that another process has the directory open.
var ErrLocked = errors.New("badgerkv: directory is in use by another process")

// LockedError names the directory that is in use, and the process that uses it. It matches
// ErrLocked.
type LockedError struct {
	Dir string
	PID int // of the process that has it open; 0 if unknown
}

// Error names the directory and the process.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("badgerkv: %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("badgerkv: %s is in use by process %d", e.Dir, e.PID)
}

// Is reports whether target is ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// CorruptError reports that the content of the directory is damaged or cannot be opened by
// Badger. It matches metadata.ErrCorrupt.
type CorruptError struct {
	Dir string
	Err error // the cause

	held string // the path under which Badger knows Dir
}

// Error names the directory and the cause.
func (e *CorruptError) Error() string {
	cause := e.Err.Error()
	if e.held != "" {
		cause = strings.ReplaceAll(cause, e.held, e.Dir)
	}
	return fmt.Sprintf("badgerkv: cannot open the store in %s: %s", e.Dir, cause)
}

// Is reports whether target is metadata.ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == metadata.ErrCorrupt }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// JournalError reports that the journal of records is damaged. It matches metadata.ErrCorrupt.
type JournalError struct {
	Path string
	// Commits is the number of commits before the damage.
	Commits int
	Err     error // the cause
}

// Error names the file and the cause.
func (e *JournalError) Error() string {
	return fmt.Sprintf("the journal of the records, %s, is damaged: %s", e.Path,
		strings.TrimPrefix(e.Err.Error(), errJournal.Error()+": "))
}

// Is reports whether target is metadata.ErrCorrupt.
func (e *JournalError) Is(target error) bool { return target == metadata.ErrCorrupt }

// Unwrap returns the cause.
func (e *JournalError) Unwrap() error { return e.Err }

// longestFile is the size, in bytes, of the longest file that Badger makes when it opens a store: it maps a log, and the
// file for large values, at twice its size.
const longestFile = 2 * max(memTableSize, valueLogSize)

// SizeLimitError reports that this process may not write files as long as those of a store. It matches
// metadata.ErrNoSpace.
type SizeLimitError struct {
	Dir   string
	Limit uint64 // bytes
}

// Error names the directory, the limit and the remedy.
func (e *SizeLimitError) Error() string {
	return fmt.Sprintf("the limit on the size of files of this process is %s, and those of %s have up to %s; raise it (ulimit -f unlimited, or LimitFSIZE=infinity of its service) and start it again",
		humanize.IBytes(e.Limit), e.Dir, humanize.IBytes(longestFile))
}

// Is reports whether target is metadata.ErrNoSpace.
func (e *SizeLimitError) Is(target error) bool { return target == metadata.ErrNoSpace }

// sizeLimit returns a *SizeLimitError if the files of a store in dir are longer than this process may write.
func sizeLimit(dir string) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return fmt.Errorf("read the limit on the size of files: %w", err)
	}
	if limit.Cur < longestFile {
		return &SizeLimitError{Dir: dir, Limit: limit.Cur}
	}
	return nil
}

// translate maps Badger's errors to those of package metadata.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, badger.ErrKeyNotFound):
		return metadata.ErrNoKey
	case errors.Is(err, badger.ErrTxnTooBig):
		return metadata.ErrTooLarge
	case errors.Is(err, badger.ErrReadOnlyTxn):
		return metadata.ErrReadOnly
	case errors.Is(err, badger.ErrDBClosed), errors.Is(err, badger.ErrBlockedWrites):
		return metadata.ErrClosed
	}
	return err
}
