package badgerkv

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// remakeAfter is the time after which a journal that could not be made anew is tried again.
const remakeAfter = time.Second

// Logged if the file of a journal is not where the next process looks for it.
const (
	journalRemade = "the journal of the records was removed or replaced while it was in use, and is made anew; " +
		"leave this file alone while the daemon runs: changes that are only in it are lost if the daemon is killed"
	journalGone = "the journal of the records was removed or replaced while it was in use, and can't be made anew: " +
		"each change waits until it is written; make room for this file, which is tried again every second"
)

// journalFile is the file that a journal is mapped from.
type journalFile struct {
	path string
	// is identifies the file.
	is atomic.Pointer[os.FileInfo]
	// gone is set while path leads elsewhere, and no other file could be put there: the next process would not find the changes.
	gone atomic.Bool
	// next is the time of the next attempt to put one there. KV.flushing guards it.
	next time.Time
}

// isThere reports whether the path leads to the file, as a whole and not by a link.
func (f *journalFile) isThere() bool {
	st, err := os.Lstat(f.path)
	there := err == nil && os.SameFile(st, *f.is.Load()) && st.Size() == journalSize
	if there && f.gone.Load() {
		f.gone.Store(false)
	}
	return there
}

// allocateJournal allocates the blocks of a journal: a write to a mapped page that has none would end the process.
func allocateJournal(f *os.File) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, journalSize); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// mapJournal maps a file that has its blocks.
func mapJournal(f *os.File) (page []byte, st os.FileInfo, err error) {
	if st, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	page, err = unix.Mmap(int(f.Fd()), 0, journalSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return page, st, err
}

// keepJournal makes sure that the next process finds the journal: a file that was removed or replaced is made anew.
func (kv *KV) keepJournal() {
	f := &kv.journal.file
	if f.isThere() {
		return
	}
	kv.flushing.Lock()
	defer kv.flushing.Unlock()
	if kv.closed.Load() || f.isThere() || time.Now().Before(f.next) { // a journal that is closed is not mapped
		return
	}
	err := kv.remakeJournal()
	switch failed := f.gone.Swap(err != nil); {
	case err == nil:
		kv.log.Warn(journalRemade, zap.String("file", f.path))
	case !failed:
		kv.log.Error(journalGone, zap.String("file", f.path), zap.Error(err))
	}
	if err != nil {
		f.next = time.Now().Add(remakeAfter)
	}
}

// remakeJournal copies the journal to a new file, which takes the place of its own. If it can't, the journal stays in its own, which
// may come back.
//
// +checklocks:kv.flushing
func (kv *KV) remakeJournal() error {
	j := kv.journal
	temp := j.file.path + ".new"
	page, st, err := createJournal(temp)
	if err != nil {
		return errors.Join(err, removed(temp))
	}
	kv.mu.Lock()
	j.copyTo(page)
	if err = os.Rename(temp, j.file.path); err == nil {
		page, j.page = j.page, page
		j.file.is.Store(&st)
	}
	kv.mu.Unlock()
	if err = errors.Join(err, unix.Munmap(page)); err != nil {
		return errors.Join(err, removed(temp))
	}
	return nil
}

// createJournal creates and maps the file of a journal, in the place of one that a process has left.
func createJournal(path string) (page []byte, st os.FileInfo, err error) {
	if err = removed(path); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // it is mapped
	if err = allocateJournal(f); err != nil {
		return nil, nil, fmt.Errorf("allocate %s: %w", path, err)
	}
	return mapJournal(f)
}

// removed removes a file, if there is one.
func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// copyTo copies the journal to other memory.
func (j *journal) copyTo(page []byte) {
	copy(page, j.page[:journalHead])
	for n := range 2 {
		at := journalHead + n*journalHalf
		copy(page[at:], j.half(n)[:j.number(endAt, n)])
	}
}
