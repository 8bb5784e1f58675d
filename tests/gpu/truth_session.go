package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
)

// own starts a truth process that has memory with the content of seedA, and
// returns its handle. The caller ends it.
func (s *suite) own(ctx context.Context, kind string, size devices.Size, pieces, lead int) (*session, string, error) {
	h, err := s.talk(ctx, "truth", "own", kind, bytes(size), fmt.Sprint(seedA), fmt.Sprint(pieces), fmt.Sprint(lead),
		s.device.ordinal())
	if err != nil {
		return nil, "", err
	}
	handle, err := h.hear()
	if err != nil {
		return nil, "", err
	}
	return h, handle, nil
}

// open starts a truth process that opens a handle. The caller ends it.
func (s *suite) open(ctx context.Context, handle string) (*session, error) {
	h, err := s.talk(ctx, "truth", "open", s.device.ordinal())
	if err != nil {
		return nil, err
	}
	answer, err := h.ask(strings.ReplaceAll(handle, "\n", " "))
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(answer, "open ") {
		return nil, errors.Join(fmt.Errorf("truth open says %q", answer), h.end())
	}
	return h, nil
}
