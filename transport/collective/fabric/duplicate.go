package fabric

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Duplicate makes a fabric of the same ranks. The ranks exchange the numbers of their
// copies over this fabric; packets are routed by these numbers.
func (o *over) Duplicate(ctx context.Context) (Fabric, error) {
	if !o.gate.Enter() {
		return nil, ErrClosed
	}
	defer o.gate.Leave()
	ctx, cancel := context.WithTimeout(ctx, o.opts.Timeout)
	defer cancel()
	defer context.AfterFunc(o.life, cancel)() //nolint:contextcheck // the end of the fabric cancels it too
	for {
		f, err := o.duplicate(ctx)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, errAnew) {
			return nil, fmt.Errorf("duplicate the fabric over domain %q: %w", o.name, err)
		}
	}
}

// duplicate makes one attempt.
//
// Errors: errAnew if another rank has timed out and starts again.
func (o *over) duplicate(ctx context.Context) (*over, error) {
	f, err := newOver(o.c, o.name, o.me, o.worlds, o.opts)
	if err != nil {
		return nil, err
	}
	f.parent = o
	o.reg.addCopy(f)
	o.series.again()
	number := binary.LittleEndian.AppendUint64(nil, f.nonce)
	got, err := o.rendezvous(ctx, func(plan.Rank) []byte { return number })
	if err == nil {
		err = o.formCopy(ctx, f, got)
	}
	if err == nil {
		return f, o.copies.add(f)
	}
	return nil, errors.Join(err, f.Close()) //nolint:contextcheck // cleanup must not depend on the context
}

// formCopy connects a copy with those of the other ranks. It stops if another rank starts
// again, since both would otherwise wait for each other.
//
// Errors: errAnew if another rank starts again.
func (o *over) formCopy(ctx context.Context, f *over, numbers [][]byte) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := &o.series
	m.mu.Lock()
	m.forming = cancel
	if m.newest > m.epoch {
		cancel(errAnew)
	}
	m.mu.Unlock()
	err := f.introduce(numbers)
	if err == nil {
		err = f.form(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forming, m.failed = nil, err != nil
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errAnew):
		return errAnew
	case errors.Is(err, errAnew):
		// The copy starts again, not this fabric.
		return &MissingError{Err: errors.New("a rank has abandoned the duplication")}
	}
	return err
}

// again begins a new epoch if a rendezvous of the current one has failed.
func (m *rendezvousSeries) again() {
	m.mu.Lock()
	failed := m.failed || m.newest > m.epoch
	m.mu.Unlock()
	if failed {
		m.begin()
	}
}

// introduce records the numbers of the other ranks' copies in a copy.
func (o *over) introduce(numbers [][]byte) error {
	m := &o.series
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, b := range numbers {
		if len(b) != 8 {
			return fmt.Errorf("rank %d has sent %d bytes instead of a number: %w", r, len(b), ErrProtocol)
		}
		// A faster rank may have sent its number already, with data.
		if n := binary.LittleEndian.Uint64(b); r != int(o.me) && m.peers[r].nonce != n {
			m.peers[r] = peer{nonce: n}
		}
	}
	return nil
}
