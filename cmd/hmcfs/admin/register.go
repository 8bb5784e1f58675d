package admin

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// registerPlain serves a request to register over plain HTTP.
func (s *Server) registerPlain(w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	one, err := s.sessions.enter(c, r.Header.Get(adminapi.SessionHeader))
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	defer s.sessions.exit(c, one)
	s.solve(w, r, one, frames.RequestRegister, s.register)
}

func (s *Server) register(ctx context.Context, q *question, read func(any) error) (solution, error) {
	var asked adminapi.Register
	if err := read(&asked); err != nil {
		return solution{}, err
	}
	m, err := memoryOf(asked, q.received)
	if err == nil && asked.Memory == nil { // a registered file is written to
		err = s.mayChange()
	}
	if err != nil {
		return solution{}, err
	}
	id, err := q.one.client.PreRegister(ctx, m)
	return solution{value: adminapi.Registered{Memory: id}}, err
}

func memoryOf(r adminapi.Register, received []*os.File) (hetero.Memory, error) {
	switch {
	case (r.File || r.Target) == (r.Memory != nil) || r.File && r.Target:
		return hetero.Memory{}, fmt.Errorf("%w: register takes a memory, a file or a target", hetero.ErrInvalid)
	case r.Memory != nil:
		return hetero.Memory{Device: r.Device, Share: r.Memory, Files: received, Number: r.Number}, nil
	case len(received) != 1:
		return hetero.Memory{}, fmt.Errorf("%w: a file is named by one descriptor, but %d were received", hetero.ErrInvalid, len(received))
	case r.Target:
		return hetero.Memory{Target: received[0], Number: r.Number}, nil
	}
	return hetero.Memory{Device: r.Device, File: received[0], Number: r.Number}, nil
}
