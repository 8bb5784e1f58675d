package admin

import (
	"errors"
	"runtime"
	"sync"

	"github.com/hmcfs/hmcfs/objects/frames"
)

// alone is the number of bytes of a call above which it is executed by a goroutine of its own while several sessions
// have calls: the others would wait for it, and another processor may be free.
const alone = 128 << 10

// attendants read the sessions with frames. Each is one goroutine, which finds all of its sessions that have something to read by one
// system call, and executes their calls itself, one after the other. So a call wakes no other thread of the
// daemon, and with many clients on few processors there is one wakeup for many calls.
type attendants struct {
	pollers *frames.Pollers
	turns   *turns

	mu sync.Mutex
	// +checklocks:mu
	all []*attendant
}

// attendant is one of them. It has a goroutine and a set while it has sessions.
type attendant struct {
	of     *attendants
	reader reader
	// last is the number of the session that was served last. It belongs to the goroutine.
	last uint64

	mu sync.Mutex
	// +checklocks:mu
	set *frames.Set
	// +checklocks:mu
	sessions map[uint64]*framed
	// number is that of the last session.
	// +checklocks:mu
	number uint64
}

// place is the place of a session with its attendant.
type place struct {
	at     *attendant
	number uint64
}

// open makes the attendants: one for each processor but one, which the clients have.
func (s *attendants) open(t *turns) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pollers, s.turns = frames.NewPollers(), t
	s.all = make([]*attendant, max(1, runtime.GOMAXPROCS(0)-1))
	for i := range s.all {
		a := &attendant{of: s, sessions: map[uint64]*framed{}}
		a.reader.read = a.run
		s.all[i] = a
	}
}

// add makes an attendant read a session: the one before, or that with the fewest.
func (s *attendants) add(f *framed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.place.at == nil {
		least := 0
		for _, a := range s.all {
			if n := a.count(); f.place.at == nil || n < least {
				f.place.at, least = a, n
			}
		}
	}
	return f.place.at.add(f)
}

func (a *attendant) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.sessions)
}

func (a *attendant) add(f *framed) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	begins := a.set == nil
	if begins {
		set, err := frames.NewSet(a.of.pollers)
		if err != nil {
			return err
		}
		a.set = set
	}
	a.number++
	f.place.number, f.by = a.number, &a.reader
	a.sessions[a.number] = f
	err := a.set.Add(f.link, a.number)
	if err != nil {
		delete(a.sessions, a.number)
	}
	switch {
	case begins && err == nil:
		a.of.turns.add(&a.reader)
		go a.run()
	case begins:
		err = errors.Join(err, a.set.Close())
		a.set = nil
	}
	return err
}

// remove ends the reading of a session. The caller is the goroutine.
func (a *attendant) remove(f *framed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.set.Remove(f.link) // it may have failed
	delete(a.sessions, f.place.number)
}

// next returns a session.
func (a *attendant) next(number uint64) *framed {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessions[number]
}

// run serves sessions until there are none, or another goroutine does.
func (a *attendant) run() {
	a.mu.Lock()
	set := a.set
	a.mu.Unlock()
	var room [16]uint64
	for ready := room[:0]; ; {
		var err error
		if ready, err = set.Wait(ready[:0]); err != nil {
			a.fail(err)
		}
		for _, number := range ready {
			f := a.next(number)
			if f == nil {
				continue
			}
			a.reader.shared, a.last = len(ready) > 1 || a.last != number, number
			if a.serve(f) == handedOn {
				return
			}
		}
		if a.rests() {
			return
		}
	}
}

// serve serves a session, and says what became of it.
func (a *attendant) serve(f *framed) step {
	next, err := f.serve()
	switch next {
	case splits:
		a.remove(f)
		f.by = &f.own
		a.of.turns.add(&f.own)
		go f.own.read()
	case ends:
		a.remove(f)
		f.over <- err
	case stays, handedOn:
	}
	return next
}

// fail ends all sessions after an error of the set.
func (a *attendant) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for number, f := range a.sessions {
		delete(a.sessions, number)
		f.over <- err
	}
}

// rests ends the goroutine if it has no sessions.
func (a *attendant) rests() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.sessions) > 0 {
		return false
	}
	_ = a.set.Close() // nobody waits
	a.set = nil
	a.of.turns.remove(&a.reader)
	return true
}
