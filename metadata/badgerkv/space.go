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
	// logRoom is the number of bytes allocated for a log: a full memtable and the last
	// transaction, which is at most 15 % of that, and as much again for its headers.
	logRoom = memTableSize + 4<<20
	// earlierLogRoom is logRoom of earlier versions.
	earlierLogRoom = earlierMemTableSize + 4<<20
	// manifestRoom is the number of bytes allocated beyond the manifest's end. A full log
	// becomes one table and causes a few compactions, at about 20 bytes per table.
	manifestRoom = 1 << 20
	// maxUnderWay bounds the bytes of the commits in progress, so that they can't fill the
	// log that follows the current one.
	maxUnderWay = memTableSize / 16 * 15
	// maxFull bounds the full logs that wait for their tables. Badger keeps NumMemtables
	// beside the one that it writes, and blocks all commits beyond that.
	maxFull = 2
	// tableRoom is the free space, in bytes, that is enough for Badger to write a table.
	tableRoom = 2 * memTableSize
	// stallLimit bounds the wait for Badger to write a table while full logs wait.
	stallLimit = 30 * time.Second
	// looksAfter is the time for which a look at the file system is taken to be true, and
	// looksBytes bounds the bytes admitted without another.
	looksAfter = time.Millisecond
	looksBytes = 64 << 10
	// usable bounds the bytes written to a log while no next log exists.
	usable = memTableSize - 64<<10
	// entryRoom bounds the overhead of entries in a log, and in a memtable, beyond their keys and
	// values. In a log that is at most 36; in a memtable 48 on average, and up to 122 for a few, whose
	// number Badger draws by lot. A commit has room for two entries that it does not contain.
	entryRoom = 64
)

// space ensures that blocks are allocated for everything that Badger writes during a
// commit. Badger starts a new log when one is full, and can't work without it. So there is
// always one log more than Badger uses: an empty file with allocated blocks, under the name
// of Badger's next log. While it can't be created, commits are refused before the current
// log can become full.
//
// mu is held during system calls on the directory, and no lock is acquired under it.
type space struct {
	dir     string
	self    *os.File // the directory as it was opened
	reserve uint64
	log     *zap.Logger
	ended   *sync.Cond // on mu; signalled when a commit ends

	mu sync.Mutex
	// present is the number of the log that Badger is writing to.
	// +checklocks:mu
	present int
	// next is the path, by the directory's name, of the next log; empty until that exists.
	// +checklocks:mu
	next string
	// full holds the numbers of logs whose tables are not written yet, oldest first.
	// +checklocks:mu
	full []int
	// used is an upper bound for the bytes written to the current log; underWay is one for
	// what the commits in progress may still write.
	// +checklocks:mu
	used, underWay int64
	// latest is the value of underWay when a commit was admitted at the last look at the next log, and
	// what was admitted since: Badger may have written as much to a log that it has switched to since.
	// +checklocks:mu
	latest int64
	// low is set if less than the reserve was free at the last check.
	// +checklocks:mu
	low bool
	// asked is the time at which the free space was last read, looked that of the last look at
	// the next log, and since the number of bytes admitted after it.
	// +checklocks:mu
	asked, looked time.Time
	// +checklocks:mu
	since int64
	// sparse is set if the file system can't allocate blocks.
	// +checklocks:mu
	sparse bool
	// ending is set once no more commits are admitted.
	// +checklocks:mu
	ending bool
}

// newSpace returns a space for a store that Badger has just opened.
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

// path returns the path of a log by the directory's name; held returns one that stays valid
// when the directory is renamed.
func (s *space) path(log int) string { return filepath.Join(s.dir, logName(log)) }

func (s *space) held(log int) string { return filepath.Join(heldPath(s.self), logName(log)) }

// admit waits until a commit of n bytes can be made, and counts it; done ends it. Without a
// next log, commits may use up the rest of the current one. A commit that is written soon relies
// on a recent look at the next log.
//
// Errors: metadata.ErrNoSpace (a *SpaceError); ErrGone (a *GoneError);
// metadata.ErrClosed after drain; the context's.
func (s *space) admit(ctx context.Context, n int64, soon bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.underWay > 0 && s.underWay+n > maxUnderWay {
		s.ended.Wait()
	}
	if s.ending {
		return metadata.ErrClosed
	}
	var err error
	looks := !soon || !s.recentlyLocked(n)
	if looks {
		err = s.awaitNextLocked(ctx)
	}
	if err != nil && (!errors.Is(err, metadata.ErrNoSpace) || s.used+n > usable) {
		return err
	}
	if s.ending { // since awaitNextLocked has unlocked
		return metadata.ErrClosed
	}
	s.underWay += n
	s.used += n
	s.since += n
	if s.latest += n; looks {
		s.latest = s.underWay
	}
	return nil
}

// recentlyLocked reports whether a next log was there a moment and a few bytes ago, fewer with n
// than Badger needs to fill a log.
//
// +checklocks:s.mu
func (s *space) recentlyLocked(n int64) bool {
	return s.next != "" && s.since+n < looksBytes && time.Since(s.looked) < looksAfter
}

// awaitNextLocked waits until there is a next log for Badger. It unlocks while it waits.
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
			return s.noSpace(fmt.Sprintf("no table was written within %v", stallLimit))
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

// done ends an admitted commit of n bytes.
func (s *space) done(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay -= n
	s.ended.Broadcast()
}

// drain stops the admission of commits and waits for those in progress: they would
// otherwise store to the witnesses after these are unmapped.
func (s *space) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	for s.underWay > 0 {
		s.ended.Wait()
	}
}

// advanceLocked follows Badger to the next log and creates the one after it. busy reports
// that this has to wait until Badger has written a table.
//
// +checklocks:s.mu
func (s *space) advanceLocked() (busy bool, err error) {
	if s.next != "" {
		s.looked, s.since = time.Now(), 0
		var st unix.Stat_t
		switch err := unix.Stat(s.next, &st); {
		case errors.Is(err, unix.ENOENT):
			return false, &GoneError{Dir: s.dir}
		case err != nil:
			return false, fmt.Errorf("stat the next log: %w", err)
		case st.Size == 0:
			return false, nil
		}
		s.full = append(s.full, s.present)
		s.present++
		s.used, s.next = s.latest, ""
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
		return false, errors.Join(err, s.noSpace("Badger cannot write a table"))
	}
	return true, nil
}

// makeNextLocked creates the log that Badger will use next.
//
// +checklocks:s.mu
func (s *space) makeNextLocked() error {
	if err := s.inPlace(); err != nil {
		return err
	}
	path := s.held(s.present + 1)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return s.wrap(fmt.Errorf("create the next log: %w", err))
	}
	err = errors.Join(s.allocateLocked(f, 0, logRoom), s.extendManifestLocked())
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(s.wrap(err), os.Remove(path))
	}
	s.next = s.path(s.present + 1)
	return nil
}

// extendManifestLocked allocates space for appends to the manifest: a partly written record
// makes the store unreadable.
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

// allocateLocked allocates a range of a file without changing the file's size.
//
// +checklocks:s.mu
func (s *space) allocateLocked(f *os.File, at, n int64) error {
	sparse, err := fallocate(int(f.Fd()), at, n)
	if sparse && !s.sparse {
		s.log.Warn("the file system of the state directory cannot preallocate space; the daemon is killed if it becomes full", zap.String("dir", s.dir))
	}
	s.sparse = s.sparse || sparse
	return err
}

// fallocate allocates a range of a file without changing the file's size. sparse reports
// that the file system does not support it, which is no error.
func fallocate(fd int, at, n int64) (sparse bool, err error) {
	err = unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, at, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return true, nil
	}
	return false, err
}

// room waits for a next log, so that the rest of the current one is left for removals. It
// returns a *SpaceError if less than the reserve is free, or if there is no space for that
// log.
func (s *space) room(ctx context.Context) error {
	if err := s.aboveReserve(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != "" { // as of the last commit; the next one checks again
		return nil
	}
	return s.awaitNextLocked(ctx)
}

// aboveReserve returns a *SpaceError if less than the reserve is free.
func (s *space) aboveReserve() error {
	if s.wasAbove() {
		return nil
	}
	free, err := s.free()
	if err != nil {
		return fmt.Errorf("free space of %s: %w", s.dir, err)
	}
	low := free < s.reserve
	s.mu.Lock()
	was := s.low
	s.low, s.asked = low, time.Now()
	s.mu.Unlock()
	if !low {
		if was {
			s.log.Info("enough space is free again; accepting changes", zap.String("dir", s.dir), zap.Uint64("free", free))
		}
		return nil
	}
	err = s.noSpace("")
	if !was {
		s.log.Error("refusing changes of names and attributes", zap.Error(err))
	}
	return err
}

// wasAbove reports whether enough was free a moment ago.
func (s *space) wasAbove() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.low && time.Since(s.asked) < looksAfter
}

// free returns the number of bytes available in the directory's file system.
func (s *space) free() (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(s.self.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// inPlace returns a *GoneError unless the directory still has the path it was opened by.
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

// finishable returns the reason why Badger can't write its last tables, or nil.
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
		return s.noSpace("Badger cannot write a table")
	}
	return nil
}

// removeNext removes the prepared next log, unless Badger uses it already.
func (s *space) removeNext() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == "" {
		return nil
	}
	s.next = ""
	path := s.held(s.present + 1)
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Size() > 0 {
		return nil
	}
	return errors.Join(err, os.Remove(path))
}

// wrap turns a lack of space reported by the system into a *SpaceError.
func (s *space) wrap(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return s.noSpace(err.Error())
	}
	if errors.Is(err, unix.EFBIG) {
		return errors.Join(sizeLimit(s.dir), err)
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

// SpaceError reports that the file system of a store has too little space for a change. It
// matches metadata.ErrNoSpace.
type SpaceError struct {
	Dir           string
	Free, Reserve uint64 // bytes
	Why           string // what failed; empty if less than the reserve is free
}

// Error names the directory, the free space and the remedy.
func (e *SpaceError) Error() string {
	why := ""
	if e.Why != "" {
		why = " (" + e.Why + ")"
	}
	return fmt.Sprintf("the file system of %s has %s free, and %s are reserved for removals and unmounting%s; free some space there, or mount with a smaller --reserve or another --state-dir",
		e.Dir, humanize.IBytes(e.Free), humanize.IBytes(e.Reserve), why)
}

// Is reports whether target is metadata.ErrNoSpace.
func (e *SpaceError) Is(target error) bool { return target == metadata.ErrNoSpace }

// ErrGone reports that the directory of an open store has disappeared.
var ErrGone = errors.New("badgerkv: directory has disappeared")

// GoneError reports that the directory of an open store was removed, renamed, or hidden by
// another file system. It matches ErrGone.
type GoneError struct{ Dir string }

// Error names the directory and the remedy.
func (e *GoneError) Error() string {
	return fmt.Sprintf("the records' directory %s was removed or replaced: nothing can be changed; unmount and mount again", e.Dir)
}

// Is reports whether target is ErrGone.
func (e *GoneError) Is(target error) bool { return target == ErrGone }

// enoughToOpen checks that there is space for the tables of all logs, which Badger writes
// immediately, and for two more logs.
func enoughToOpen(opts Options, self *os.File) error {
	if err := sizeLimit(opts.Dir); err != nil {
		return err
	}
	names, err := logsIn(opts.Dir)
	if err != nil {
		return err
	}
	needed := uint64(2*logRoom + 2*manifestRoom)
	for _, name := range names {
		var st unix.Stat_t
		if err = unix.Stat(name, &st); err != nil {
			return fmt.Errorf("stat %s: %w", name, err)
		}
		needed += uint64(min(st.Blocks*512, earlierLogRoom))
	}
	s := &space{dir: opts.Dir, self: self, reserve: opts.Reserve, log: opts.Logger}
	free, err := s.free()
	if err == nil && free < needed {
		err = s.noSpace("opening the store takes " + humanize.IBytes(needed))
	}
	return err
}

// allocationPause is the delay between two attempts to allocate space for a file.
const allocationPause = 50 * time.Millisecond
