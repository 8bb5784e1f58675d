package admin

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// turnLimit is about half of the time after which the frames behind a call are read by
	// another goroutine.
	turnLimit = 500 * time.Microsecond
	// turnsIdle is the number of looks without a call after which turns looks no more.
	turnsIdle = 20
)

// turns watches the sessions whose reading goroutine executes a call itself. When a call takes
// long it starts another goroutine to read: other calls, and cancellations, do not wait for it.
// The zero value is ready to use.
type turns struct {
	// watching is true while look runs.
	watching atomic.Bool

	mu sync.Mutex
	// seen has the turn of each session at the last look.
	// +checklocks:mu
	seen map[*framed]uint64
}

func (t *turns) add(f *framed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil {
		t.seen = map[*framed]uint64{}
	}
	t.seen[f] = f.turn.Load()
}

func (t *turns) remove(f *framed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.seen, f)
}

// watch makes sure that the sessions are watched. The caller has begun its turn.
func (t *turns) watch() {
	if !t.watching.Load() && t.watching.CompareAndSwap(false, true) {
		go t.run()
	}
}

func (t *turns) run() {
	for idle := 0; ; {
		begun := time.Now()
		calls := t.look()
		// With thousands of sessions a look takes longer; it must not occupy a processor.
		time.Sleep(max(turnLimit, 20*time.Since(begun)))
		if calls {
			idle = 0
		} else {
			idle++
		}
		if idle < turnsIdle {
			continue
		}
		// A call that begins now sees that nobody watches, or is seen here.
		t.watching.Store(false)
		if !t.look() || !t.watching.CompareAndSwap(false, true) {
			return
		}
	}
}

// look hands on the reading of sessions whose call was in progress at the last look. It reports
// whether there were calls since then.
func (t *turns) look() (calls bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for f, before := range t.seen {
		now := f.turn.Load()
		if now == before && now%2 == 1 && f.turn.CompareAndSwap(now, now+1) {
			now++
			go f.read()
		}
		calls = calls || now != before || now%2 == 1
		t.seen[f] = now
	}
	return calls
}
