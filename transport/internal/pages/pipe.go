package pages

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// wanted is the preferred size of a pipe, in bytes of whole pages: twice a
	// frame of usual length. An unprivileged process gets half of it.
	wanted = 2 << 20
	// maxIdle bounds the pipes that a pool keeps, maxPipes those in use.
	maxIdle, maxPipes = 8, 128
)

// Pool holds the pipes of a process for reuse. The zero value is empty. It may be
// used from any goroutine.
type Pool struct {
	mu sync.Mutex
	// +checklocks:mu
	idle []*Pipe
	// +checklocks:mu
	out int
	// +checklocks:mu
	closed bool
}

// Get returns an empty pipe; ok is false if none is available.
func (p *Pool) Get() (_ *Pipe, ok bool) {
	p.mu.Lock()
	if p.closed || p.out >= maxPipes {
		p.mu.Unlock()
		return nil, false
	}
	p.out++
	if n := len(p.idle); n > 0 {
		pipe := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return pipe, true
	}
	p.mu.Unlock()
	pipe, err := newPipe()
	if err != nil {
		p.mu.Lock()
		p.out--
		p.mu.Unlock()
	}
	return pipe, err == nil
}

// Put returns a pipe to the pool. Bytes left in it are dropped.
func (p *Pool) Put(pipe *Pipe) {
	p.mu.Lock()
	p.out--
	keep := !p.closed && pipe.held == 0 && len(p.idle) < maxIdle
	if keep {
		p.idle = append(p.idle, pipe)
	}
	p.mu.Unlock()
	if !keep {
		pipe.close()
	}
}

// Close closes the idle pipes, and each other one when it is returned.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, pipe := range idle {
		pipe.close()
	}
}

// Pipe holds bytes in transit. One goroutine uses it at a time.
type Pipe struct {
	r, w int
	// pages is the number of pages that it has room for.
	pages int
	// held is the number of bytes in it.
	held int
}

func newPipe() (*Pipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	p := &Pipe{r: fds[0], w: fds[1]}
	size, err := unix.FcntlInt(uintptr(p.w), unix.F_SETPIPE_SZ, wanted)
	if err != nil {
		size, err = unix.FcntlInt(uintptr(p.w), unix.F_SETPIPE_SZ, wanted/2)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("pipe of %d bytes: %w", wanted/2, err)
	}
	p.pages = size / os.Getpagesize()
	return p, nil
}

// close drops the bytes in the pipe.
func (p *Pipe) close() { _, _ = unix.Close(p.r), unix.Close(p.w) }

// Fits reports whether n bytes of a file from off span few enough pages for the
// pipe.
func (p *Pipe) Fits(off int64, n int) bool {
	page := int64(os.Getpagesize())
	return (off%page+int64(n)+page-1)/page <= int64(p.pages)
}

// Fill writes bytes into the empty pipe; they must fit.
func (p *Pipe) Fill(b []byte) error {
	n, err := unix.Write(p.w, b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("write to a pipe: %w", err)
	}
	p.held += n
	return nil
}

// FromFile puts the pages of n bytes of a file, from off, into the empty pipe;
// they must fit.
//
// Errors: io.ErrUnexpectedEOF if the file ends earlier.
func (p *Pipe) FromFile(f *os.File, off int64, n int) error {
	for p.held < n {
		k, err := splice(int(f.Fd()), &off, p.w, nil, n-p.held)
		if err != nil {
			return fmt.Errorf("pass pages of a file to a pipe: %w", err)
		}
		if k == 0 {
			return fmt.Errorf("the file ends at %d, %d bytes short: %w", off, n-p.held, io.ErrUnexpectedEOF)
		}
		p.held += k
	}
	return nil
}

// ToFile writes everything in the pipe to a file.
func (p *Pipe) ToFile(f *os.File, off int64) error {
	for p.held > 0 {
		k, err := splice(p.r, nil, int(f.Fd()), &off, p.held)
		if err == nil && k == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return fmt.Errorf("pass pages from a pipe to a file: %w", err)
		}
		p.held -= k
	}
	return nil
}

// splice moves up to n bytes. It never waits for a pipe.
func splice(from int, fromOff *int64, to int, toOff *int64, n int) (int, error) {
	for {
		k, err := unix.Splice(from, fromOff, to, toOff, n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return int(max(k, 0)), err
	}
}
