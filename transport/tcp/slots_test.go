package tcp

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// An engine that had no slot is asked again.
func TestSlotsThatComeLater(t *testing.T) {
	const chunk = devices.MiB
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if cerr := e.Close(); cerr != nil {
			t.Error(cerr)
		}
	}()
	var others []*slot
	for p, ok := e.Slots().TryGet(chunk); ok; p, ok = e.Slots().TryGet(chunk) {
		others = append(others, p)
	}
	var s slotSet
	if _, err = s.get(t.Context(), e, chunk); !errors.Is(err, devices.ErrOutOfMemory) {
		t.Errorf("with none left: %v", err)
	}
	for _, p := range others {
		p.Release()
	}
	p, err := s.get(t.Context(), e, chunk)
	if err != nil {
		t.Fatal(err)
	}
	s.giveBack(p)
	s.release()
}
