package owner

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Watcher notifies of the end of processes. A goroutine waits for each of them. All methods may be
// called from any goroutine.
type Watcher struct {
	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	watched map[ID]*watched
	// next is the number of the last callback.
	// +checklocks:mu
	next uint64
	// waiting counts the goroutines.
	waiting sync.WaitGroup
}

// watched is one process; the Watcher's mu guards it.
type watched struct {
	process *Process
	ended   map[uint64]func()
}

// NewWatcher returns a watcher without processes.
func NewWatcher() *Watcher { return &Watcher{watched: map[ID]*watched{}} }

// Watch calls ended once, from a goroutine of the watcher, when the process has ended, unless
// cancel is called before. cancel does not stop a callback that is already running. The watcher
// takes ownership of the process, even if Watch fails.
func (w *Watcher) Watch(p *Process, ended func()) (cancel func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	entry, known := w.watched[p.id]
	switch {
	case w.closed:
		return nil, errors.Join(errors.New("owner: the watcher is closed"), p.Close())
	case known:
		if err = p.Close(); err != nil {
			return nil, err
		}
	default:
		// This fails for a descriptor that can't be waited for.
		if err = p.file.SetReadDeadline(time.Time{}); err != nil {
			return nil, errors.Join(fmt.Errorf("watch process %d: %w", p.id.PID, err), p.Close())
		}
		entry = &watched{process: p, ended: map[uint64]func(){}}
		w.watched[p.id] = entry
		w.waiting.Go(func() { w.wait(entry) })
	}
	w.next++
	n := w.next
	entry.ended[n] = ended
	return func() { w.cancel(entry, n) }, nil
}

// wait waits for a process to end and then runs its callbacks. It returns early when the process is
// closed.
func (w *Watcher) wait(entry *watched) {
	conn, err := entry.process.file.SyscallConn()
	if err == nil {
		err = conn.Read(func(uintptr) bool { return entry.process.alive() != nil })
	}
	if err != nil {
		return
	}
	for _, ended := range w.take(entry) {
		ended()
	}
}

func (w *Watcher) cancel(entry *watched, n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := entry.ended[n]; !there {
		return
	}
	delete(entry.ended, n)
	if len(entry.ended) == 0 {
		w.dropLocked(entry)
	}
}

// dropLocked forgets a process. Closing its descriptor ends the goroutine that waits for it.
//
// +checklocks:w.mu
func (w *Watcher) dropLocked(entry *watched) {
	if w.watched[entry.process.id] != entry {
		return
	}
	delete(w.watched, entry.process.id)
	_ = entry.process.Close() // nothing was written to it
}

// take removes a process and returns its callbacks.
func (w *Watcher) take(entry *watched) map[uint64]func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := entry.ended
	entry.ended = nil
	w.dropLocked(entry)
	return ended
}

// Close ends all watches. No callback is running when it returns.
func (w *Watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	for _, entry := range w.watched {
		entry.ended = nil
		w.dropLocked(entry)
	}
	w.mu.Unlock()
	w.waiting.Wait()
	return nil
}
