package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/frames"
)

// fileCall is one call on files in progress.
type fileCall struct {
	framed *framed
	id     uint64
	verb   frames.FileVerb
	q      frames.FileCall
	// body is the memory of the call, to which q refers, and out that of its answer.
	body, out []byte
	// taken is the memory reserved from the budget of the user.
	taken int64
	// again is set if a daemon before may have carried it out.
	again bool
	a     fileAnswer
}

// fileCall starts a call on files. Its error ends the session.
func (f *framed) fileCall(h frames.Header) error {
	c, ok := f.server.fileCalls.Get().(*fileCall)
	if !ok {
		c = &fileCall{}
		c.a.get, c.a.put = c.a.moveTo, c.a.moveFrom
	}
	c.framed, c.id, c.verb, c.again = f, h.ID, frames.FileVerb(h.Verb), h.Again
	fault, err := c.receive(int(h.Size))
	if err != nil {
		f.one.user.memory.Release(c.taken)
		return err
	}
	var ctx context.Context
	if fault == 0 {
		ctx, fault = f.admitFile(c)
	}
	if fault != 0 {
		f.one.user.memory.Release(c.taken)
		return c.answer(&fileAnswer{out: c.begin()}, fault)
	}
	f.one.calls.Add(1)
	if f.in.Buffered() > 0 {
		go c.run(ctx)
		return nil
	}
	return f.take(ctx, c)
}

// receive receives the body of a call. fault is a reason to refuse the call, err one to end the
// session.
func (c *fileCall) receive(n int) (fault syscall.Errno, err error) {
	f := c.framed
	c.taken = 0
	fault = f.reserveFile(c, n)
	if fault != 0 {
		if _, err = f.in.Discard(n); err != nil {
			return 0, fmt.Errorf("receive a call on files: %w", err)
		}
		return fault, nil
	}
	c.body = slices.Grow(c.body[:0], n)[:n]
	if n > f.in.Buffered() {
		if err = f.conn.SetReadDeadline(time.Now().Add(bodyLimit)); err != nil {
			return 0, err
		}
		defer func() { _ = f.conn.SetReadDeadline(time.Time{}) }() // a closed connection fails the next read
	}
	if _, err = io.ReadFull(f.in, c.body); err != nil {
		return 0, fmt.Errorf("receive a call on files: %w", err)
	}
	if frames.ParseFileCall(c.body, &c.q, &f.names) != nil {
		return syscall.EINVAL, nil
	}
	switch {
	case c.verb == frames.FileRead && c.q.Memory == 0:
		fault = f.reserveFile(c, int(min(c.q.Size, frames.MaxFileData)))
	case c.verb == frames.FileRead, c.verb == frames.FileCopy, c.verb == frames.FileWrite && c.q.Memory != 0:
		fault = f.reserveFile(c, fs.BounceSize)
	case c.verb == frames.FileGetAttribute, c.verb == frames.FileListAttributes:
		fault = f.reserveFile(c, metadata.MaxXattr)
	case c.verb == frames.FileList:
		fault = f.reserveFile(c, frames.MaxFileData)
	}
	return fault, nil
}

// reserveFile reserves n bytes for a call.
//
// Errors: EMSGSIZE; EBUSY.
func (f *framed) reserveFile(c *fileCall, n int) syscall.Errno {
	switch {
	case n > frames.MaxFileCall:
		f.server.opts.Refusals.add(boundCallBytes)
		return syscall.EMSGSIZE
	case f.one.user.reserve(int64(n)) != nil:
		f.server.opts.Refusals.add(boundCallBytes)
		return syscall.EBUSY
	}
	c.taken += int64(n)
	return 0
}

// admitFile counts a call, and returns its context, which cancel ends.
//
// Errors: EOPNOTSUPP for an unknown verb; EINVAL; EBUSY.
func (f *framed) admitFile(c *fileCall) (context.Context, syscall.Errno) {
	if f.files == nil || c.verb >= frames.FileVerbs || f.server.fileVerbs[c.verb] == nil {
		return nil, syscall.EOPNOTSUPP
	}
	ctx, err := f.admit(f.files.life, c.id)
	return ctx, errnoOf(err)
}

// begin begins the frame of the answer.
func (c *fileCall) begin() []byte {
	b := frames.Begin(c.out[:0], frames.KindFileAnswer, 0, c.id)
	return frames.AppendFileAnswer(b, &frames.FileAnswer{})
}

// run executes a call and answers it.
func (c *fileCall) run(ctx context.Context) {
	f, done := c.framed, false
	defer f.one.calls.Done()
	defer func() {
		f.one.user.memory.Release(c.taken)
		f.mu.Lock()
		f.active--
		f.mu.Unlock()
		if done { // what a call that has panicked uses is unknown
			f.server.fileCalls.Put(c)
		}
	}()
	defer f.contain()
	begun := time.Now()
	c.a = fileAnswer{out: c.begin(), get: c.a.get, put: c.a.put, again: c.again}
	fault := errnoOf(f.server.fileVerbs[c.verb](ctx, f.files, &c.q, &c.a))
	if c.again && fault != 0 {
		fault = f.files.settled(ctx, c.verb, &c.q, fault)
	}
	f.server.opts.Calls.recordFile(f.conn.peer, c.verb, c.a.n, begun, fault)
	f.finish(c.id, true)      // before the client has the answer
	_ = c.answer(&c.a, fault) // a failure to send ends the session
	done = true
}

// answer sends the answer.
func (c *fileCall) answer(a *fileAnswer, fault syscall.Errno) error {
	const fixed = frames.HeaderSize + frames.FileAnswerFixed
	if fault != 0 {
		a.out = append(a.out[:fixed], cmp.Or(a.refused, fault.Error())...)
	}
	frames.AppendFileAnswer(a.out[:frames.HeaderSize], &frames.FileAnswer{Errno: uint32(fault), Handle: a.handle, N: a.n})
	c.out = a.out
	if err := frames.Finish(a.out, 0); err != nil {
		return err
	}
	return c.framed.send(a.out)
}
