package netns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Impairment describes the effect of the link from one space to another on frames. The zero
// value delivers all frames at once.
type Impairment struct {
	// Loss is the fraction of frames that are dropped, from 0 to 1.
	Loss float64
	// Delay is the transit time of each frame, and Jitter the maximum of a random addition.
	// Frames arrive in the order in which they were sent.
	Delay, Jitter time.Duration
}

const (
	// frameSize is the largest frame, with its header.
	frameSize = 9018
	mtu       = "9000"
	// queueLength bounds the frames in transit from one space to another; further frames
	// are dropped, as by any switch.
	queueLength = 4096
)

// NewRelayed is NewNet with a switch in this process in place of the kernel's. The links
// between any two spaces can be impaired, each direction separately, even on kernels
// without netem and packet filters. It is slower than the kernel's.
func NewRelayed(ctx context.Context, n int) (*Net, error) {
	return newNet(ctx, n, (*Net).wireRelay)
}

// Impair sets the impairment of the link from one space to another, in that direction only.
// The Net must come from NewRelayed.
func (n *Net) Impair(from, to *Space, i Impairment) {
	r := n.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ways[way{from, to}] = i
}

func (n *Net) wireRelay(ctx context.Context) error {
	n.relay = &relay{
		ways: map[way]Impairment{}, learned: map[address]*port{},
		random: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // frames are lost by chance
		ends:   make(chan struct{}),
	}
	for _, s := range n.all() {
		file, err := s.tap()
		if err != nil {
			return fmt.Errorf("tap device of %s: %w", s.Name, err)
		}
		n.relay.ports = append(n.relay.ports, &port{space: s, tap: file})
	}
	for _, s := range n.all() {
		if err := s.run(ctx, "ip", "link", "set", device, "mtu", mtu); err != nil {
			return err
		}
		if err := s.up(ctx); err != nil {
			return err
		}
	}
	n.relay.start()
	return nil
}

// tap creates the space's end of the cable: frames that the space sends are read from the
// file.
func (s *Space) tap() (*os.File, error) {
	type made struct {
		file *os.File
		err  error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		file, err := s.openTap()
		done <- made{file, err}
	}()
	m := <-done
	return m.file, m.err
}

func (s *Space) openTap() (*os.File, error) {
	if err := s.Enter(); err != nil {
		return nil, err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(device)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "tap"), nil
}

// address is the hardware address of a network card.
type address [6]byte

// way is the link from one space to another.
type way struct{ from, to *Space }

// port is a space's connection to the relay.
type port struct {
	space *Space
	tap   *os.File
}

// relay is the switch.
type relay struct {
	ports []*port
	ends  chan struct{}
	runs  sync.WaitGroup

	mu sync.Mutex
	// +checklocks:mu
	ways map[way]Impairment
	// +checklocks:mu
	learned map[address]*port
	// +checklocks:mu
	random *rand.Rand
}

// frame is a frame in transit.
type frame struct {
	bytes []byte
	due   time.Time
}

func (r *relay) start() {
	for _, from := range r.ports {
		queues := map[*port]chan frame{}
		for _, to := range r.ports {
			if to != from {
				queue := make(chan frame, queueLength)
				queues[to] = queue
				r.runs.Go(func() { r.deliver(to, queue) })
			}
		}
		r.runs.Go(func() { r.take(from, queues) })
	}
}

// take reads the frames that a space sends until the tap is closed.
func (r *relay) take(from *port, queues map[*port]chan frame) {
	buffer := make([]byte, frameSize)
	for {
		n, err := from.tap.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil || n < 14 {
			continue // the link is down
		}
		for _, to := range r.targets(from, address(buffer[:6]), address(buffer[6:12])) {
			due, lost := r.fate(from, to)
			if lost {
				continue
			}
			select {
			case queues[to] <- frame{append([]byte(nil), buffer[:n]...), due}:
			default: // the queue is full
			}
		}
	}
}

// targets returns the ports to which a frame is forwarded.
func (r *relay) targets(from *port, to, sender address) []*port {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.learned[sender] = from
	if known := r.learned[to]; known != nil && to[0]&1 == 0 {
		if known == from {
			return nil
		}
		return []*port{known}
	}
	var all []*port
	for _, p := range r.ports {
		if p != from {
			all = append(all, p)
		}
	}
	return all
}

// fate decides whether and when a frame arrives.
func (r *relay) fate(from, to *port) (due time.Time, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.ways[way{from.space, to.space}]
	if i.Loss > 0 && r.random.Float64() < i.Loss {
		return due, true
	}
	late := i.Delay
	if i.Jitter > 0 {
		late += time.Duration(r.random.Int64N(int64(i.Jitter)))
	}
	if late > 0 {
		due = time.Now().Add(late)
	}
	return due, false
}

// deliver delivers the frames from one space to another, each when it is due.
func (r *relay) deliver(to *port, queue chan frame) {
	for {
		select {
		case <-r.ends:
			return
		case f := <-queue:
			if !r.sleep(time.Until(f.due)) {
				return
			}
			_, _ = to.tap.Write(f.bytes) // a link that is down drops it
		}
	}
}

// sleep waits for d. It returns false if the relay ends first.
func (r *relay) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.ends:
		return false
	case <-timer.C:
		return true
	}
}

func (r *relay) close() error {
	close(r.ends)
	var errs []error
	for _, p := range r.ports {
		errs = append(errs, p.tap.Close())
	}
	r.runs.Wait()
	return errors.Join(errs...)
}
