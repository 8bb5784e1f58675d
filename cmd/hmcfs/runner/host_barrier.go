package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// longestArrival bounds the size, in bytes, of a rank's arrival message.
const longestArrival = 4096

// hostBarrier is the end of barriers at a host, to which its ranks connect. The runner
// tracks which ranks have come.
type hostBarrier struct {
	listener net.Listener
	first    int
	count    int
	tell     func(k kind, v any) error
	closed   sync.WaitGroup

	mu sync.Mutex
	// +checklocks:mu
	last uint64
	// shut reports that no more arrivals are accepted.
	// +checklocks:mu
	shut bool
	// waiting holds the ranks that have come, by number.
	// +checklocks:mu
	waiting map[uint64]chan answer
}

// newHostBarrier listens for ranks that come to barriers.
func newHostBarrier(socket string, first, count int, tell func(k kind, v any) error) (*hostBarrier, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("barriers: %w", err)
	}
	d := &hostBarrier{listener: l, first: first, count: count, tell: tell, waiting: map[uint64]chan answer{}}
	d.closed.Go(d.accept)
	return d, nil
}

// acceptPause is the time between attempts to accept a rank.
const acceptPause = 50 * time.Millisecond

func (d *hostBarrier) accept() {
	for {
		c, err := d.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files: the next attempt may work
			<-time.After(acceptPause)
			continue
		}
		d.closed.Go(func() {
			defer func() { _ = c.Close() }()
			_ = json.NewEncoder(c).Encode(d.serve(c)) // a rank that has closed needs no answer
		})
	}
}

// serve handles one rank at a barrier.
func (d *hostBarrier) serve(c net.Conn) answer {
	var a arrival
	from := bufio.NewReaderSize(c, longestArrival)
	line, err := from.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil || a.Rank < d.first || a.Rank >= d.first+d.count {
		return answer{Fault: "not understood"}
	}
	id, ch, fault := d.enter()
	if fault != "" {
		return answer{Fault: fault}
	}
	defer d.forget(id)
	if err = d.tell(kindArrive, numberedArrival{ID: id, Arrival: a}); err != nil {
		return answer{Fault: "the runner has exited"}
	}
	over := make(chan struct{})
	go func() {
		_, _ = from.ReadByte() // the rank sends nothing more: it has closed
		close(over)
	}()
	var gone <-chan struct{} = over
	var late <-chan time.Time
	if a.Timeout > 0 {
		t := time.NewTimer(a.Timeout)
		defer t.Stop()
		late = t.C
	}
	for {
		select {
		case got := <-ch:
			return got
		case <-late:
		case <-gone:
		}
		// The rank leaves. The runner answers that too: the rank may already have been
		// released.
		late, gone = nil, nil
		if err = d.tell(kindLeave, departure{ID: id}); err != nil {
			return answer{Fault: "the runner has exited"}
		}
	}
}

// enter assigns a number to an arriving rank.
func (d *hostBarrier) enter() (id uint64, ch chan answer, fault string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.shut:
		return 0, nil, "the job has ended"
	case len(d.waiting) >= mostArrivals:
		return 0, nil, "too many ranks are waiting at barriers"
	}
	d.last++
	ch = make(chan answer, 1)
	d.waiting[d.last] = ch
	return d.last, ch, ""
}

func (d *hostBarrier) forget(id uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting, id)
}

// answer releases one rank.
func (d *hostBarrier) answer(id uint64, a answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ch := d.waiting[id]; ch != nil {
		ch <- a
		delete(d.waiting, id)
	}
}

// close rejects further arrivals and releases all ranks. It is called when all ranks have
// ended, or the runner has.
func (d *hostBarrier) close() {
	_ = d.listener.Close()
	d.mu.Lock()
	d.shut = true
	for id, ch := range d.waiting {
		ch <- answer{Fault: "the job has ended"}
		delete(d.waiting, id)
	}
	d.mu.Unlock()
	d.closed.Wait()
}

// Barrier waits at a job's barrier until all ranks have come. It can be called again, also
// after an error.
//
// Errors: a MissingError; the context's.
func Barrier(ctx context.Context, socket, name string, rank int, timeout time.Duration) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("barrier: the runner does not answer: %w", err)
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	var got answer
	if err = json.NewEncoder(c).Encode(arrival{Rank: rank, Name: name, Timeout: timeout}); err == nil {
		err = json.NewDecoder(c).Decode(&got)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("barrier: the runner has exited: %w", err)
	case got.Fault != "":
		return fmt.Errorf("barrier %q: %s", name, got.Fault)
	case len(got.Missing) > 0:
		return &MissingError{Barrier: name, Ranks: got.Missing, Ended: got.Ended, After: timeout}
	}
	return nil
}
