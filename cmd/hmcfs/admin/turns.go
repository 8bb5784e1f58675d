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

// reader is a goroutine that reads the frames of one session, or of several.
type reader struct {
	// turn is odd while the goroutine executes a call itself; it changes with every
	// such call. Whoever makes it even reads from then on.
	turn atomic.Uint64
	// read is the function of the goroutine.
	read func()
	// shared is true while several sessions have calls. It belongs to the goroutine.
	shared bool
}

// turns watches the readers that execute calls themselves. When a call takes
// long it starts another goroutine to read: other calls, and cancellations, do not wait for it.
// The zero value is ready to use.
type turns struct {
	// watching is true while look runs.
	watching atomic.Bool

	mu sync.Mutex
	// seen has the turn of each reader at the last look.
	// +checklocks:mu
	seen map[*reader]uint64
}

func (t *turns) add(r *reader) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil {
		t.seen = map[*reader]uint64{}
	}
	t.seen[r] = r.turn.Load()
}

func (t *turns) remove(r *reader) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.seen, r)
}

// watch makes sure that the readers are watched. The caller has begun its turn.
func (t *turns) watch() {
	if !t.watching.Load() && t.watching.CompareAndSwap(false, true) {
		go t.run()
	}
}

func (t *turns) run() {
	for idle := 0; ; {
		begun := time.Now()
		calls := t.look()
		// With thousands of readers a look takes longer; it must not occupy a processor.
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

// look hands on the reading where a call was in progress at the last look. It reports
// whether there were calls since then.
func (t *turns) look() (calls bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r, before := range t.seen {
		now := r.turn.Load()
		if now == before && now%2 == 1 && r.turn.CompareAndSwap(now, now+1) {
			now++
			go r.read()
		}
		calls = calls || now != before || now%2 == 1
		t.seen[r] = now
	}
	return calls
}
