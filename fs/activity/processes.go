package activity

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// slots is roughly the number of threads that are recorded at the same time.
	slots = 512
	// forgetAfter is the time without activity after which a thread is forgotten: the kernel may have
	// given its number to another one.
	forgetAfter = 10 * time.Minute
)

// Process counts what one thread has done since it was first seen. A process whose number is known
// is noted by that.
type Process struct {
	// PID is the number of the thread; 0 for requests of the kernel itself, and of processes that
	// have no number here.
	PID, UID int
	// Group is the thread's process, and Command the name of its program; empty if it was not found.
	Group   int
	Command string
	// Reads and Writes count operations; one that does both counts as both.
	Reads, ReadBytes     uint64
	Writes, WrittenBytes uint64
	Last                 time.Time
}

// Processes are the threads that moved bytes recently. The zero value has none. Its methods may be
// called from any goroutine.
type Processes struct {
	// slots are indexed by the thread's number. A thread replaces the record of another one in its
	// slot, which is rare.
	slots [slots]slot
}

type slot struct {
	mu sync.Mutex
	// +checklocks:mu
	of Process
	_  [24]byte // slots that are used by several processors share no cache line
}

// Note counts an operation that read or wrote bytes, or did both. The thread should still exist: its
// process and program are looked up when it is first seen.
func (p *Processes) Note(pid, uid int, read, written uint64) {
	now := time.Now()
	s := &p.slots[uint(pid)%slots]
	s.mu.Lock()
	if !s.of.is(pid, uid, now) {
		s.mu.Unlock()
		one := Process{PID: pid, UID: uid}
		one.Group, one.Command = Find(pid)
		s.mu.Lock()
		if !s.of.is(pid, uid, now) {
			s.of = one
		}
	}
	defer s.mu.Unlock()
	if read > 0 {
		s.of.Reads++
		s.of.ReadBytes += read
	}
	if written > 0 {
		s.of.Writes++
		s.of.WrittenBytes += written
	}
	s.of.Last = now
}

// is reports whether the record is that of a thread.
func (p *Process) is(pid, uid int, now time.Time) bool {
	return p.PID == pid && p.UID == uid && !p.Last.IsZero() && now.Sub(p.Last) <= forgetAfter
}

// List returns the threads that were active in the last minutes, in no order.
func (p *Processes) List() []Process {
	var out []Process
	now := time.Now()
	for i := range p.slots {
		if one := p.slots[i].get(); !one.Last.IsZero() && now.Sub(one.Last) <= forgetAfter {
			out = append(out, one)
		}
	}
	return out
}

func (s *slot) get() Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of
}

// Find returns the process of a thread, and the name of its program. For a thread that does not exist
// it returns the thread's own number and no name.
func Find(thread int) (process int, command string) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	if err != nil {
		return thread, ""
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); name {
		case "Name":
			command = value
		case "Tgid":
			if n, err := strconv.Atoi(value); err == nil {
				return n, command
			}
		}
	}
	return thread, command
}
