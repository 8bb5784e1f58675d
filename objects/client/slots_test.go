package client

import (
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// TestLateSlots gives back slots of calls that have ended, and of one that the daemon did not end in time:
// the daemon may still write to its memory, so that no other call may use it.
func TestLateSlots(t *testing.T) {
	t.Parallel()
	late := fmt.Errorf("%w: %w", hetero.ErrTimeout, errLate)
	for _, c := range []struct {
		err   error
		again bool
	}{{nil, true}, {hetero.ErrNotFound, true}, {hetero.ErrTimeout, true}, {late, false}} {
		u := newValues(&Session{})
		v := <-u.free
		v.bytes, v.mapped = make([]byte, slotSize), [][]byte{nil}
		u.session.calls.Add(1)
		u.give(v, c.err)
		if got := <-u.free; len(got.mapped) != 1 || (got == v) != c.again || !c.again && (got.bytes != nil || got.number != 1) {
			t.Errorf("after %v the slot is free: %v; %+v", c.err, got == v, got.number)
		}
	}
}
