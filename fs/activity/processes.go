package activity

import (
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
	PID, UID int
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

// Note counts an operation that read or wrote bytes, or did both.
func (p *Processes) Note(pid, uid int, read, written uint64) {
	now := time.Now()
	s := &p.slots[uint(pid)%slots]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of.PID != pid || s.of.UID != uid || now.Sub(s.of.Last) > forgetAfter {
		s.of = Process{PID: pid, UID: uid}
	}
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
