package client

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
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

// registerOnce makes a request to register memory, and again if the daemon has died meanwhile. generation is that of the one that has
// answered.
func (s *Session) registerOnce(ctx context.Context, question adminapi.Register, files []*os.File) (id hetero.MemoryID, generation int, err error) {
	for {
		if generation, err = s.present(ctx); err != nil {
			return 0, 0, err
		}
		var done adminapi.Registered
		err = s.request(ctx, frames.RequestRegister, question, files, &done)
		switch {
		case errors.Is(err, errReplaced):
			continue
		case err != nil:
			return 0, 0, s.requestError(err)
		case done.Memory == 0:
			return 0, 0, fmt.Errorf("%w: %w", hetero.ErrIO, errAnswer)
		}
		return done.Memory, generation, nil
	}
}

// requestError converts the error of a request.
func (s *Session) requestError(err error) error {
	if said, ok := errors.AsType[*Error](err); ok {
		return s.errorOf(said.Code, said.Text)
	}
	if errors.Is(err, os.ErrInvalid) || errors.Is(err, os.ErrClosed) || errors.Is(err, frames.ErrFrame) {
		return fmt.Errorf("%w: %w", hetero.ErrInvalid, err) // the request could not be sent
	}
	return err
}

// Unregister releases memory.
func (s *Session) Unregister(ctx context.Context, id hetero.MemoryID) error {
	err := s.listed(ctx, adminapi.VerbUnregister, &adminapi.Call{Memory: id}, func(adminapi.Line) {})
	if err == nil {
		s.unremember(id)
	}
	return err
}
