package fabric

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// relay is a stream over a connection that only goroutines can use, such as one with TLS:
// one goroutine reads from it into a ring, another writes to it from a ring.
type relay struct {
	conn net.Conn
	// wake wakes the rank when bytes have arrived or there is room.
	wake func()
	// out and in are the ends used by the rank; next and filled those used by the
	// goroutines.
	out     outlet
	in      inlet
	next    inlet
	filled  outlet
	work    chan struct{}
	room    chan struct{}
	stop    chan struct{}
	failed  atomic.Pointer[error]
	running sync.WaitGroup
}

func newRelay(conn net.Conn, wake func()) *relay {
	r := &relay{conn: conn, wake: wake, work: make(chan struct{}, 1), room: make(chan struct{}, 1), stop: make(chan struct{})}
	out, in := pipe{&flow{}, make([]byte, maxRing)}, pipe{&flow{}, make([]byte, maxRing)}
	r.out, r.next = outlet{pipe: out}, inlet{pipe: out}
	r.filled, r.in = outlet{pipe: in}, inlet{pipe: in}
	r.running.Go(r.read)
	r.running.Go(r.write)
	return r
}

// close ends the connection and its goroutines. Bytes accepted by send are written first,
// as long as the peer reads.
func (r *relay) close() {
	close(r.stop)
	// The connection is being discarded: its errors no longer matter.
	_ = r.conn.SetReadDeadline(time.Unix(1, 0))
	_ = r.conn.SetWriteDeadline(time.Now().Add(time.Second))
	r.running.Wait()
	_ = r.conn.Close()
}

func (r *relay) fail(err error) {
	r.failed.CompareAndSwap(nil, &err)
	r.wake()
}

func (r *relay) err() error {
	if e := r.failed.Load(); e != nil {
		return *e
	}
	return nil
}

// signal wakes the receiver of a channel that holds one token.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// read moves received bytes into the ring.
func (r *relay) read() {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.conn.Read(buf)
		for p := buf[:n]; len(p) > 0; {
			m, rerr := r.filled.send(nil, p)
			if rerr != nil {
				r.fail(rerr)
				return
			}
			p = p[m:]
			r.wake()
			if m > 0 {
				continue
			}
			select {
			case <-r.room:
			case <-r.stop:
				return
			}
		}
		if err != nil {
			r.fail(err)
			return
		}
	}
}

// write moves bytes from the ring to the connection.
func (r *relay) write() {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.next.receive(buf)
		if err == nil && n > 0 {
			r.wake()
			_, err = r.conn.Write(buf[:n])
		}
		if err != nil {
			r.fail(err)
			return
		}
		if n > 0 {
			continue
		}
		select {
		case <-r.work:
			continue
		case <-r.stop:
		}
		if n, err = r.next.filled(); n == 0 || err != nil {
			return
		}
	}
}

// send puts into the ring as many bytes as fit.
func (r *relay) send(head, body []byte) (int, error) {
	if err := r.err(); err != nil {
		return 0, err
	}
	n, err := r.out.send(head, body)
	if n > 0 {
		signal(r.work)
	}
	return n, err
}

func (r *relay) receive(p []byte) (int, error) {
	failed := r.err()
	n, err := r.in.receive(p)
	if n > 0 {
		signal(r.room)
		return n, nil
	}
	if err == nil && len(p) > 0 {
		err = failed
	}
	return 0, err
}

// ready reports whether the stream can make the progress that w asks for.
func (r *relay) ready(w Want) bool {
	if r.err() != nil {
		return true
	}
	if n, err := r.in.filled(); w.Receive && (n > 0 || err != nil) {
		return true
	}
	n, err := r.out.room()
	return w.Send && (n > 0 || err != nil)
}
