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
	// slots is the number of threads that are recorded at the same time.
	slots = 512
	// ways is the number of records that a thread's number leads to.
	ways = 4
	// forgetAfter is the time without activity after which a thread is forgotten: the kernel may have
	// given its number to another one.
	forgetAfter = 10 * time.Minute
	// keepFor is the time without activity for which a thread keeps its record when another one needs
	// it. It bounds how often threads are looked up: slots in this time.
	keepFor = 10 * time.Second
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
	// sets are indexed by the thread's number. A thread whose set is full of active ones is not
	// recorded, which is rare.
	sets [slots / ways]set
}

type set struct {
	mu sync.Mutex
	// +checklocks:mu
	of [ways]Process
	_  [56]byte // sets that are used by several processors share no cache line
}

// Note counts an operation that read or wrote bytes, or did both. The thread should still exist: its
// process and program are looked up when it is first seen.
func (p *Processes) Note(pid, uid int, read, written uint64) {
	now := time.Now()
	s := &p.sets[uint(pid)%uint(len(p.sets))]
	s.mu.Lock()
	one, first := s.find(pid, uid, now)
	if one == nil {
		s.mu.Unlock()
		return
	}
	if read > 0 {
		one.Reads++
		one.ReadBytes += read
	}
	if written > 0 {
		one.Writes++
		one.WrittenBytes += written
	}
	one.Last = now
	s.mu.Unlock()
	if !first {
		return
	}
	group, command := Find(pid) // others are noted meanwhile
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.is(pid, uid, now) {
		one.Group, one.Command = group, command
	}
}

// find returns the record of a thread, and whether it is a new one; nil if there is no room.
//
// +checklocks:s.mu
func (s *set) find(pid, uid int, now time.Time) (one *Process, first bool) {
	oldest := &s.of[0]
	for i := range s.of {
		one = &s.of[i]
		if one.is(pid, uid, now) {
			return one, false
		}
		if one.Last.Before(oldest.Last) {
			oldest = one
		}
	}
	if now.Sub(oldest.Last) <= keepFor {
		return nil, false
	}
	*oldest = Process{PID: pid, UID: uid, Group: pid}
	return oldest, true
}

// is reports whether the record is that of a thread.
func (p *Process) is(pid, uid int, now time.Time) bool {
	return p.PID == pid && p.UID == uid && !p.Last.IsZero() && now.Sub(p.Last) <= forgetAfter
}

// List returns the threads that were active in the last minutes, in no order.
func (p *Processes) List() []Process {
	var out []Process
	now := time.Now()
	for i := range p.sets {
		for _, one := range p.sets[i].get() {
			if !one.Last.IsZero() && now.Sub(one.Last) <= forgetAfter {
				out = append(out, one)
			}
		}
	}
	return out
}

func (s *set) get() [ways]Process {
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
