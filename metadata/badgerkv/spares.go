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

// spareNames is the number of files created to check that Badger can create one: more than
// Badger starts between two checks.
const spareNames = 16

// tableNext begins the message by which a compaction of Badger announces that the content
// of a table is ready; it creates the table afterwards. TestTablesAreAnnounced fails if
// Badger changes the message.
const tableNext = "[%d] LOG Compact. Added "

// spares ensures that the directory has room for the files that Badger is about to create.
// If a compaction can't open a table's file, the table is lost: its records are gone, and
// older ones reappear. A full disk may lack a block for a longer directory, or an inode,
// and the process may have run out of descriptors.
type spares struct {
	dir *os.File
	// looks counts the calls of await.
	looks atomic.Int64

	mu sync.Mutex
}

// await waits until spare files can be created, and so until the directory and its inodes
// have room.
func (s *spares) await() {
	s.looks.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for err := s.try(); err != nil && !errors.Is(err, unix.ENOENT); err = s.try() {
		time.Sleep(allocationPause)
	}
}

// try creates spare files, with names as long as those of tables, all at the same time, and
// removes them. ENOENT means that the directory, with all tables, was removed.
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

// awaitTable calls await if a message of Badger announces a table.
func (s *spares) awaitTable(format string) {
	if strings.HasPrefix(format, tableNext) {
		s.await()
	}
}
