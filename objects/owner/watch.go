package owner

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Watcher notifies of the end of processes. One goroutine waits for all of them; it runs as long
// as any process is watched. All methods may be called from any goroutine.
type Watcher struct {
	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	poll *poll
	// +checklocks:mu
	watched map[ID]*watched
	// byFD finds the process for an event.
	// +checklocks:mu
	byFD map[int32]*watched
	// next is the number of the last callback.
	// +checklocks:mu
	next uint64
}

// watched is one process; the Watcher's mu guards it.
type watched struct {
	process *Process
	ended   map[uint64]func()
}

// poll has the descriptors that the goroutine waits on.
type poll struct {
	epoll, wake int
	done        chan struct{}
}

// NewWatcher returns a watcher without processes.
func NewWatcher() *Watcher {
	return &Watcher{watched: map[ID]*watched{}, byFD: map[int32]*watched{}}
}

// Watch calls ended once, from the watcher's goroutine, when the process has ended, unless
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
		if entry, err = w.addLocked(p); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	w.next++
	n := w.next
	entry.ended[n] = ended
	return func() { w.cancel(entry, n) }, nil
}

// +checklocks:w.mu
func (w *Watcher) addLocked(p *Process) (*watched, error) {
	if w.poll == nil {
		poll, err := newPoll()
		if err != nil {
			return nil, err
		}
		w.poll = poll
		go w.run(poll)
	}
	fd := int32(p.file.Fd())
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: fd}
	if err := unix.EpollCtl(w.poll.epoll, unix.EPOLL_CTL_ADD, int(fd), &event); err != nil {
		return nil, fmt.Errorf("watch process %d: %w", p.id.PID, err)
	}
	entry := &watched{process: p, ended: map[uint64]func(){}}
	w.watched[p.id], w.byFD[fd] = entry, entry
	return entry, nil
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

// dropLocked forgets a process. Closing its descriptor removes it from the epoll set.
//
// +checklocks:w.mu
func (w *Watcher) dropLocked(entry *watched) {
	if w.watched[entry.process.id] != entry {
		return
	}
	delete(w.watched, entry.process.id)
	delete(w.byFD, int32(entry.process.file.Fd()))
	_ = entry.process.Close() // nothing was written to it
}

// take removes the process of an event and returns its callbacks.
func (w *Watcher) take(fd int32) map[uint64]func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	entry := w.byFD[fd]
	// The event may be of a descriptor that was closed since, and whose number now belongs to
	// another process.
	if entry == nil || entry.process.alive() == nil {
		return nil
	}
	ended := entry.ended
	entry.ended = nil
	w.dropLocked(entry)
	return ended
}

// Close stops the goroutine. No callback is running when it returns.
func (w *Watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	for _, entry := range w.watched {
		entry.ended = nil
		w.dropLocked(entry)
	}
	poll := w.poll
	w.poll = nil
	w.mu.Unlock()
	if poll == nil {
		return nil
	}
	return poll.stop()
}

func newPoll() (*poll, error) {
	p := &poll{done: make(chan struct{})}
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("start watching processes: %w", err)
	}
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return nil, errors.Join(fmt.Errorf("start watching processes: %w", err), unix.Close(p.epoll))
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(p.wake)}
	if err = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, p.wake, &event); err != nil {
		return nil, errors.Join(fmt.Errorf("start watching processes: %w", err), unix.Close(p.epoll), unix.Close(p.wake))
	}
	return p, nil
}

// stop ends the goroutine and waits for it.
func (p *poll) stop() error {
	if _, err := unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return fmt.Errorf("stop watching processes: %w", err)
	}
	<-p.done
	return errors.Join(unix.Close(p.epoll), unix.Close(p.wake))
}

// run waits for processes to end, until stop.
func (w *Watcher) run(p *poll) {
	defer close(p.done)
	events := make([]unix.EpollEvent, 16)
	for {
		n, err := unix.EpollWait(p.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return // impossible, since the descriptors are ours alone
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fd == int32(p.wake) {
				return
			}
			for _, ended := range w.take(e.Fd) {
				ended()
			}
		}
	}
}
