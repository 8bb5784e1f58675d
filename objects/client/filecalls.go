package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// fileAsk is one call on files.
type fileAsk struct {
	// op and name describe the call in its error.
	op, name string
	verb     frames.FileVerb
	call     frames.FileCall
	// into receives the data of the answer; nil returns them.
	into []byte
}

// do makes a call and returns its answer, also with an error of the daemon. The end of the context
// cancels the call.
//
// Errors: *fs.PathError.
func (f *Files) do(ctx context.Context, q *fileAsk) (frames.FileAnswer, error) {
	answer, err := f.session.askFile(ctx, q)
	if err == nil && answer.Errno != 0 {
		err = syscall.Errno(answer.Errno)
		if q.verb == frames.FileSetAttribute { // the text says more
			err = &daemonError{text: string(answer.Data), is: err}
		}
	}
	if err != nil {
		return answer, &fs.PathError{Op: q.op, Path: q.name, Err: err}
	}
	return answer, nil
}

// named makes a call about names, which it checks.
func (f *Files) named(q fileAsk) (frames.FileAnswer, error) {
	if err := valid(q.op, q.call.Name); err != nil {
		return frames.FileAnswer{}, err
	}
	return f.do(context.Background(), &q)
}

// valid returns an error unless a name is one of package io/fs.
func valid(op, name string) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

func (s *Session) askFile(ctx context.Context, q *fileAsk) (frames.FileAnswer, error) {
	a := s.newAnswer(ctx)
	a.into = q.into
	if err := s.start(a); err != nil {
		return frames.FileAnswer{}, closedError(err)
	}
	var got frames.FileAnswer
	defer func() {
		a.end()
		if q.into != nil || len(got.Data) == 0 { // otherwise the caller has the frame's data
			a.recycle()
		}
	}()
	if s.continues > 0 {
		a.asked = *q // q itself would have to be allocated
		a.file = &a.asked
	}
	if err := s.sendNewFile(a, q); err != nil {
		a.over = true // it has not begun
		return frames.FileAnswer{}, err
	}
	if ctx.Done() != nil {
		a.stop = context.AfterFunc(ctx, a.cancel)
	}
	p, err := a.next()
	switch {
	case err != nil:
		return frames.FileAnswer{}, closedError(a.why(err))
	case p.kind != frames.KindFileAnswer:
		return frames.FileAnswer{}, fmt.Errorf("%w: %w", hetero.ErrIO, errAnswer)
	}
	got, err = frames.ParseFileAnswer(p.body)
	switch {
	case err != nil || q.into == nil:
	case p.data != nil:
		got.Data = p.data
	default:
		got.Data = q.into[:copy(q.into, got.Data)] // usually none
	}
	return got, err
}

// sendNewFile is sendNew for a call on files.
func (s *Session) sendNewFile(a *answer, q *fileAsk) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	a.tried = !s.cut
	err := s.sendFileCall(q, a.id, false)
	a.sent = err == nil
	return err
}

// closedError makes the error of a session that was closed one of package io/fs, too.
func closedError(err error) error {
	if errors.Is(err, hetero.ErrClosed) {
		return fmt.Errorf("%w: %w", fs.ErrClosed, err)
	}
	return err
}

// sendFileCall sends a call. Its error is that of encoding.
//
// +checklocks:s.sending
func (s *Session) sendFileCall(q *fileAsk, id uint64, again bool) error {
	head, err := frames.AppendFileCall(frames.Begin(s.out[:0], frames.KindFile, uint8(q.verb), id), &q.call)
	if errors.Is(err, frames.ErrFrame) {
		return syscall.ENAMETOOLONG
	}
	if err != nil {
		return err
	}
	s.out = head
	if again {
		frames.SetAgain(head)
	}
	if len(q.call.Data) <= sessionBuffer/2 {
		head = append(head, q.call.Data...)
		s.out = head
		if err = frames.Finish(head, 0); err == nil {
			s.writeLocked(head)
		}
		return err
	}
	if err = frames.FinishWith(head, 0, len(q.call.Data)); err == nil {
		s.writeLocked(head, q.call.Data)
	}
	return err
}
