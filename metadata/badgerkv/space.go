package badgerkv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dustin/go-humanize"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
)

const (
	// logRoom is the allocation of a log, in bytes: a full memtable, the last
	// transaction, at most 15 % of that and as much again for its headers.
	logRoom = memTableSize + 4<<20
	// earlierLogRoom is that of earlier versions.
	earlierLogRoom = earlierMemTableSize + 4<<20
	// manifestRoom is allocated beyond the manifest's end, in bytes. A log that is
	// full becomes one table and causes a few compactions, of some 20 bytes a table.
	manifestRoom = 1 << 20
	// maxUnderWay bounds the bytes of commits that have begun and not ended, so
	// that they can't fill the log that follows the present one.
	maxUnderWay = memTableSize / 2
	// maxFull bounds the full logs that wait for their tables. Badger keeps
	// NumMemtables beside the one that it writes, and stops all commits at more.
	maxFull = 2
	// tableRoom is free space with which Badger can write a table.
	tableRoom = 2 * memTableSize
	// stallLimit bounds the wait for a table of Badger's when full logs wait.
	stallLimit = 30 * time.Second
	// usable bounds what is written to a log that none follows, in bytes.
	usable = memTableSize - 64<<10
	// entryRoom is more than an entry takes in a log, and in a memtable, beside its
	// key and value.
	entryRoom = 160
)

// space sees to it that whatever Badger writes on its way through a commit is
// allocated. Badger begins a new log when one is full, and can't do without: so
// there is always one log more than it has, without a byte and with its blocks,
// which it finds under the name of its next one. Without that, commits are refused
// before the present log can be full.
//
// mu is held during system calls on the directory, and no lock is taken under it.
type space struct {
	dir     string
	self    *os.File // the directory as it was opened
	reserve uint64
	log     *zap.Logger
	ended   *sync.Cond // on mu, when a commit ends

	mu sync.Mutex
	// present is the number of the log that Badger writes to.
	// +checklocks:mu
	present int
	// ready says that the log after it is made, and next where others find it.
	// +checklocks:mu
	ready bool
	// +checklocks:mu
	next string
	// full are the numbers of logs whose tables are not written, oldest first.
	// +checklocks:mu
	full []int
	// used is at least what has gone to the present log, underWay what commits
	// that have not ended may still write.
	// +checklocks:mu
	used, underWay int64
	// latest is underWay of when the last commit was admitted: as much may Badger
	// have written to a log that it has gone to since.
	// +checklocks:mu
	latest int64
	// low says that less than the reserve was free when last asked.
	// +checklocks:mu
	low bool
	// sparse says that the file system can't allocate.
	// +checklocks:mu
	sparse bool
	// ending says that no commit is admitted any more.
	// +checklocks:mu
	ending bool
}

// newSpace looks at the logs of a store that Badger has just opened.
func newSpace(opts Options, self *os.File) (*space, error) {
	s := &space{dir: opts.Dir, self: self, reserve: opts.Reserve, log: opts.Logger}
	s.ended = sync.NewCond(&s.mu)
	s.mu.Lock()
	defer s.mu.Unlock()
	logs, err := numbersOfLogs(opts.Dir)
	if err != nil || len(logs) == 0 {
		return nil, errors.Join(err, fmt.Errorf("no log in %s", opts.Dir))
	}
	s.full, s.present = logs[:len(logs)-1], logs[len(logs)-1]
	if err := s.makeNextLocked(); err != nil && !errors.Is(err, metadata.ErrNoSpace) {
		return nil, err
	}
	return s, nil
}

// path returns the place where a log is found by others; held leads there when the directory has
// another name.
func (s *space) path(log int) string { return filepath.Join(s.dir, logName(log)) }

func (s *space) held(log int) string { return filepath.Join(heldPath(s.self), logName(log)) }

func logName(log int) string { return fmt.Sprintf("%05d%s", log, logSuffix) }

// admit waits until a commit of n bytes can be made, and counts it; done ends it.
// Without a next log it may use what is left of the present one.
//
// Errors: metadata.ErrNoSpace (a *SpaceError); ErrGone (a *GoneError);
// metadata.ErrClosed after drain; the context's.
func (s *space) admit(ctx context.Context, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.underWay > 0 && s.underWay+n > maxUnderWay {
		s.ended.Wait()
	}
	if s.ending {
		return metadata.ErrClosed
	}
	err := s.awaitNextLocked(ctx)
	if err != nil && (!errors.Is(err, metadata.ErrNoSpace) || s.used+n > usable) {
		return err
	}
	if s.ending { // since awaitNextLocked has unlocked
		return metadata.ErrClosed
	}
	s.underWay += n
	s.used += n
	s.latest = s.underWay
	return nil
}

// awaitNextLocked returns when there is a log for Badger to go to next. It unlocks
// while it waits.
//
// +checklocks:s.mu
func (s *space) awaitNextLocked(ctx context.Context) error {
	for limit := time.Now().Add(stallLimit); ; {
		busy, err := s.advanceLocked()
		switch {
		case err != nil:
			return err
		case !busy:
			return nil
		case time.Now().After(limit):
			return s.noSpace(fmt.Sprintf("no table was written in %v", stallLimit))
		}
		s.mu.Unlock()
		err = pause(ctx)
		s.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// pause sleeps before the next look at the logs.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond):
		return nil
	}
}

// done is the end of a commit that was admitted.
func (s *space) done(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay -= n
	s.ended.Broadcast()
}

// drain waits for the commits that were admitted, and has no more admitted: they would
// store to the witnesses when those are not mapped any more.
func (s *space) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	for s.underWay > 0 {
		s.ended.Wait()
	}
}

// advanceLocked follows Badger to the next log and makes the one after it. busy
// reports that this has to wait for Badger to write a table.
//
// +checklocks:s.mu
func (s *space) advanceLocked() (busy bool, err error) {
	if s.ready {
		// Every commit comes here.
		var st unix.Stat_t
		switch err := unix.Stat(s.next, &st); {
		case errors.Is(err, unix.ENOENT):
			return false, &GoneError{Dir: s.dir}
		case err != nil:
			return false, fmt.Errorf("look at the next log: %w", err)
		case st.Size == 0:
			return false, nil
		}
		s.full = append(s.full, s.present)
		s.present++
		s.used, s.ready = s.latest, false
	}
	for len(s.full) > 0 {
		if _, err := os.Stat(s.path(s.full[0])); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		s.full = s.full[1:]
	}
	if len(s.full) < maxFull {
		return false, s.makeNextLocked()
	}
	if free, err := s.free(); err != nil || free < tableRoom {
		return false, errors.Join(err, s.noSpace("Badger can't write a table"))
	}
	return true, nil
}

// makeNextLocked makes the log that Badger goes to next.
//
// +checklocks:s.mu
func (s *space) makeNextLocked() error {
	if err := s.inPlace(); err != nil {
		return err
	}
	path := s.held(s.present + 1)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return s.wrap(fmt.Errorf("make the next log: %w", err))
	}
	err = errors.Join(s.allocateLocked(f, 0, logRoom), s.extendManifestLocked())
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(s.wrap(err), os.Remove(path))
	}
	s.ready, s.next = true, s.path(s.present+1)
	return nil
}

// extendManifestLocked allocates what will be appended to the manifest: a record
// of which the half is written makes the store unreadable.
//
// +checklocks:s.mu
func (s *space) extendManifestLocked() error {
	f, err := os.OpenFile(filepath.Join(heldPath(s.self), badger.ManifestFilename), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil {
		err = s.allocateLocked(f, st.Size(), manifestRoom)
	}
	return errors.Join(err, f.Close())
}

// allocateLocked allocates a part of a file, which keeps its size.
//
// +checklocks:s.mu
func (s *space) allocateLocked(f *os.File, at, n int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, at, n)
	if cannotAllocate(err) {
		if !s.sparse {
			s.log.Warn("the file system of the state directory can't allocate; the daemon dies when it is full", zap.String("dir", s.dir))
		}
		s.sparse = true
		return nil
	}
	return err
}

// fallocate allocates a part of a file, which keeps its size. A file system that
// can't is no error.
func fallocate(fd int, at, n int64) error {
	err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, at, n)
	if cannotAllocate(err) {
		return nil
	}
	return err
}

func cannotAllocate(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

// room waits for a log that follows the present one, of which the rest is for
// removals then. It answers a *SpaceError when less than the reserve is free, or
// when there is no space for that log.
func (s *space) room(ctx context.Context) error {
	if err := s.aboveReserve(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready { // as of the last commit; the one to come looks again
		return nil
	}
	return s.awaitNextLocked(ctx)
}

// aboveReserve answers a *SpaceError when less than the reserve is free.
func (s *space) aboveReserve() error {
	free, err := s.free()
	if err != nil {
		return fmt.Errorf("free space of %s: %w", s.dir, err)
	}
	low := free < s.reserve
	s.mu.Lock()
	was := s.low
	s.low = low
	s.mu.Unlock()
	if !low {
		if was {
			s.log.Info("there is space for new names again", zap.String("dir", s.dir), zap.Uint64("free", free))
		}
		return nil
	}
	err = s.noSpace("")
	if !was {
		s.log.Error("changes of names and attributes are refused", zap.Error(err))
	}
	return err
}

// free returns the bytes that can be written to the directory's file system.
func (s *space) free() (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(s.self.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// inPlace answers a *GoneError unless the directory is where it was opened.
func (s *space) inPlace() error {
	held, err := s.self.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Stat(s.dir); err != nil || !os.SameFile(named, held) {
		return &GoneError{Dir: s.dir}
	}
	return nil
}

// finishable tells why Badger can't write its last tables.
func (s *space) finishable() error {
	if err := s.inPlace(); err != nil {
		return err
	}
	var st unix.Statfs_t
	switch err := unix.Fstatfs(int(s.self.Fd()), &st); {
	case err != nil:
		return err
	case st.Flags&unix.ST_RDONLY != 0:
		return fmt.Errorf("%s: %w", s.dir, unix.EROFS)
	case st.Bavail*uint64(st.Bsize) < tableRoom:
		return s.noSpace("Badger can't write a table")
	}
	return nil
}

// removeNext removes the log that was made for Badger, unless Badger has taken it.
func (s *space) removeNext() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return nil
	}
	s.ready = false
	path := s.held(s.present + 1)
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Size() > 0 {
		return nil
	}
	return errors.Join(err, os.Remove(path))
}

// wrap makes a *SpaceError of the system's.
func (s *space) wrap(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return s.noSpace(err.Error())
	}
	return err
}

func (s *space) noSpace(why string) error {
	free, err := s.free()
	if err != nil {
		return err
	}
	return &SpaceError{Dir: s.dir, Free: free, Reserve: s.reserve, Why: why}
}

// SpaceError says that the file system of a store has too little space for a
// change. It matches metadata.ErrNoSpace.
type SpaceError struct {
	Dir           string
	Free, Reserve uint64 // bytes
	Why           string // what failed; empty when the reserve is not free
}

// Error names the directory, what is free and the way out.
func (e *SpaceError) Error() string {
	why := ""
	if e.Why != "" {
		why = " (" + e.Why + ")"
	}
	return fmt.Sprintf("the file system of %s has %s free, and %s are kept for removals and the unmount%s; free some space there, or mount with a smaller --reserve or another --state-dir",
		e.Dir, humanize.IBytes(e.Free), humanize.IBytes(e.Reserve), why)
}

// Is reports that a SpaceError is metadata.ErrNoSpace.
func (e *SpaceError) Is(target error) bool { return target == metadata.ErrNoSpace }

// ErrGone says that the directory of an open store is gone.
var ErrGone = errors.New("badgerkv: directory is gone")

// GoneError says that the directory of an open store was removed, renamed, or is
// hidden by another file system. It matches ErrGone.
type GoneError struct{ Dir string }

// Error names the directory and the way out.
func (e *GoneError) Error() string {
	return fmt.Sprintf("the records' directory %s is gone, or another one is in its place: nothing can be changed; unmount, and mount again", e.Dir)
}

// Is reports that a GoneError is ErrGone.
func (e *GoneError) Is(target error) bool { return target == ErrGone }
