package badgerkv

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// spareNames is the number of files that are made to see whether Badger can make one: more
// than Badger begins between one look and the next.
const spareNames = 16

// tableNext begins the message of Badger's compactions that they have the content of a
// table, which is made behind it. TestTablesAreAnnounced fails where Badger says it in
// another way.
const tableNext = "[%d] LOG Compact. Added "

// spares has the files that Badger is about to make find room in the directory. A
// compaction loses a table whose file it can't open: its records are gone, and older ones
// come back. A full disk has no block for a longer directory, or none for an inode, and
// a process may have no descriptor left.
type spares struct {
	dir *os.File
	// looks counts calls of await.
	looks atomic.Int64

	mu sync.Mutex
}

// await returns when files could be made: the directory and its inodes have the room
// that they took.
func (s *spares) await() {
	s.looks.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for err := s.try(); err != nil && !errors.Is(err, unix.ENOENT); err = s.try() {
		time.Sleep(allocationPause)
	}
}

// try makes files, with names as long as those of tables, all at the same time, and
// removes them. ENOENT is a directory that is gone, with all tables.
func (s *spares) try() (err error) {
	at := int(s.dir.Fd())
	var open []int
	for i := 0; i < spareNames && err == nil; i++ {
		var fd int
		fd, err = unix.Openat(at, spareName(i), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err == nil {
			open = append(open, fd)
		}
	}
	for i, fd := range open {
		_ = unix.Close(fd) // nothing was written
		_ = unix.Unlinkat(at, spareName(i), 0)
	}
	return err
}

func spareName(i int) string { return fmt.Sprintf("spare%02d.tmp", i) }

// awaitTable is await where a message of Badger's announces a table.
func (s *spares) awaitTable(format string) {
	if strings.HasPrefix(format, tableNext) {
		s.await()
	}
}
