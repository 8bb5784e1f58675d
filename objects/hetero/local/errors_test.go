package local

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// TestTranslate converts the errors of the layers below to hetero's, even if they are wrapped,
// and keeps their text.
func TestTranslate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, want error }{
		{context.DeadlineExceeded, hetero.ErrTimeout},
		{context.Canceled, hetero.ErrInterrupted},
		{&objects.ShapeError{Want: []uint64{1}, Got: []uint64{2}}, hetero.ErrShape},
		{objects.ErrForbidden, hetero.ErrNotAuthorized},
		{objects.ErrInconsistent, hetero.ErrInconsistent},
		{objects.ErrWithdrawn, hetero.ErrWithdrawn},
		{objects.ErrBusy, hetero.ErrBusy},
		{syscall.EMFILE, hetero.ErrBusy},
		{syscall.ENFILE, hetero.ErrBusy},
		{objects.ErrLost, hetero.ErrLost},
		{devices.ErrLost, hetero.ErrLost},
		{objects.ErrUnsupported, hetero.ErrUnsupported},
		{devices.ErrUnsupported, hetero.ErrUnsupported},
		{objects.ErrInvalid, hetero.ErrInvalid},
		{metadata.ErrInvalidKey, hetero.ErrInvalid},
		{devices.ErrHandle, hetero.ErrInvalid},
		{metadata.ErrNotExist, hetero.ErrNotFound},
		{metadata.ErrExist, hetero.ErrExist},
		{&devices.OutOfMemoryError{}, hetero.ErrNoMemory},
		{objects.ErrTooLarge, hetero.ErrNoMemory},
		{objects.ErrClosed, hetero.ErrClosed},
		{fmt.Errorf("%w: whose", hetero.ErrOwnerGone), hetero.ErrOwnerGone},
		{devices.ErrDevice, hetero.ErrIO},
		{metadata.ErrCorrupt, hetero.ErrIO},
		{errors.New("of nobody"), hetero.ErrIO},
	} {
		from := fmt.Errorf("of an operation: %w", c.from)
		got := translate(from)
		if !errors.Is(got, c.want) || !errors.Is(got, c.from) {
			t.Errorf("%v is told as %v, want %v", from, got, c.want)
		}
		if told := hetero.StatusOf(got).Err; !errors.Is(c.want, told) {
			t.Errorf("%v has the status of %v, want %v", got, told, c.want)
		}
	}
	if err := translate(nil); err != nil {
		t.Errorf("no error is told as %v", err)
	}
}

// TestTranslateText says that a key does not exist, and that a node does not answer, in plain words and once.
func TestTranslateText(t *testing.T) {
	t.Parallel()
	for want, from := range map[string]error{
		`key "k": does not exist`:                fmt.Errorf("key %q: %w", "k", metadata.ErrNotExist),
		`does not exist`:                         metadata.ErrNotExist,
		`node b: node unreachable`:               fmt.Errorf("node b: %w", cluster.ErrUnreachable),
		`in use; try again: too many open files`: syscall.EMFILE,
	} {
		if got := translate(from).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestBackground(t *testing.T) {
	t.Parallel()
	refused := &Refusals{}
	b := background{refusals: refused}
	for range hetero.MaxBackgroundCalls {
		if err := b.take(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.take(1); !errors.Is(err, hetero.ErrBusy) {
		t.Errorf("a call too many: %v", err)
	}
	for range hetero.MaxBackgroundCalls {
		b.give(1)
	}
	for n := 0; n < hetero.MaxBackgroundKeys; n += hetero.MaxKeys {
		if err := b.take(hetero.MaxKeys); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.take(1); !errors.Is(err, hetero.ErrBusy) {
		t.Errorf("a key too many: %v", err)
	}
	for _, l := range refused.Limits()[1:] {
		if l.Refused != 1 {
			t.Errorf("%+v", l)
		}
	}
	b.give(hetero.MaxKeys)
	if err := b.take(hetero.MaxKeys); err != nil {
		t.Errorf("room that was given back: %v", err)
	}
}
