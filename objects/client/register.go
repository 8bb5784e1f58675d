package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// PreRegister registers memory of this process, or a file of the mount. The descriptors are
// passed to the daemon.
//
// Errors: those of hetero.Registry; hetero.ErrUnsupported for Memory.Local.
func (s *Session) PreRegister(ctx context.Context, m hetero.Memory) (hetero.MemoryID, error) {
	question := adminapi.Register{Device: m.Device, Memory: m.Share, File: m.File != nil, Target: m.Target != nil}
	files := m.Files
	switch {
	case m.Local != nil:
		return 0, fmt.Errorf("%w: memory of a device opened by this process can be registered only by a client in the daemon's process", hetero.ErrUnsupported)
	case (question.File || question.Target) == (m.Share != nil), question.File && question.Target, m.Share == nil && len(files) > 0:
		return 0, fmt.Errorf("%w: exactly one of memory, file and target must be registered", hetero.ErrInvalid)
	case question.File:
		files = []*os.File{m.File}
	case question.Target:
		files = []*os.File{m.Target}
	}
	question.Descriptors = len(files)
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.calls.Done()
	return s.register(ctx, question, files)
}

// register registers memory, and keeps what is needed to register it again. Descriptors are duplicated before the daemon
// knows the memory, since that may fail.
func (s *Session) register(ctx context.Context, question adminapi.Register, files []*os.File) (id hetero.MemoryID, err error) {
	var own []*os.File
	if s.continues > 0 {
		if own, err = duplicates(files); err != nil {
			return 0, err
		}
	}
	for kept := false; !kept; {
		var generation int
		if id, generation, err = s.registerOnce(ctx, question, files); err != nil {
			go adminapi.CloseAll(own) // which waits for the file system of a file, and that may not answer
			return 0, err
		}
		// Otherwise the daemon that has registered it is gone.
		kept = s.continues == 0 || s.remember(id, registration{question: question, files: own}, generation)
	}
	return id, nil
}

// unanswered is the number of times that a request without an answer is made while the session has its connection.
const unanswered = 5

// registerOnce makes a request to register memory, and again if the daemon has died meanwhile. generation is that of the one that has
// answered. The connections of a daemon that dies need not end at once, one after the other: so a daemon that seems to live is asked again, too.
func (s *Session) registerOnce(ctx context.Context, question adminapi.Register, files []*os.File) (id hetero.MemoryID, generation int, err error) {
	for attempt := 1; ; attempt++ {
		if generation, err = s.present(ctx); err != nil {
			return 0, 0, err
		}
		x, err := s.client.ask(ctx, adminapi.PathRegister, s.id, question, files)
		if err != nil {
			if ctx.Err() == nil && mayBeDeath(err) && (s.replaced(generation) || attempt < unanswered && s.continues > 0 && !isUnsent(err)) {
				continue
			}
			return 0, 0, s.exchangeError(ctx, err)
		}
		_ = x.close() // the answer has been read
		if x.reply.Registered == nil || x.reply.Registered.Memory == 0 {
			return 0, 0, fmt.Errorf("%w: %w", hetero.ErrIO, errAnswer)
		}
		return x.reply.Registered.Memory, generation, nil
	}
}

// mayBeDeath reports whether an error can be that of a daemon that has died, or of the next one, which
// does not know the session yet.
func mayBeDeath(err error) bool {
	if said, ok := errors.AsType[*Error](err); ok {
		return said.Code == adminapi.CodeNoSession
	}
	return true
}

// enter counts a call that has a connection of its own.
func (s *Session) enter() error {
	if err := s.ended(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return hetero.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

// exchangeError converts the error of a request with descriptors.
func (s *Session) exchangeError(ctx context.Context, err error) error {
	if said, ok := errors.AsType[*Error](err); ok {
		return s.errorOf(said.Code, said.Text)
	}
	if isUnsent(err) {
		return fmt.Errorf("%w: %w", hetero.ErrInvalid, err)
	}
	return s.broken(ctx, err)
}

// isUnsent reports whether an error says that a request could not be sent.
func isUnsent(err error) bool {
	return errors.Is(err, os.ErrInvalid) || errors.Is(err, os.ErrClosed) || errors.Is(err, adminapi.ErrFrame)
}

// Unregister releases memory.
func (s *Session) Unregister(ctx context.Context, id hetero.MemoryID) error {
	err := s.listed(ctx, adminapi.VerbUnregister, &adminapi.Call{Memory: id}, func(adminapi.Line) {})
	if err == nil {
		s.unremember(id)
	}
	return err
}

// settling bounds the wait that determines whether the end of a connection is the end of the
// daemon.
const settling = time.Second

// broken returns the error of a request on a connection of its own that got no answer.
func (s *Session) broken(ctx context.Context, cause error) error {
	if err := s.ended(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", hetero.ContextError(ctx.Err()), cause)
	}
	if errors.Is(cause, errAnswer) {
		return fmt.Errorf("%w: %w", hetero.ErrIO, cause)
	}
	s.attend(settling)
	if err := s.ended(); err != nil {
		return err
	}
	// The session still exists, and this connection does not: the daemon closes the
	// connections of a user that has too many.
	return fmt.Errorf("%w: the daemon closed the connection: %w", hetero.ErrBusy, cause)
}
