package devices

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// stub is a device that only has a description and counts its closing.
type stub struct {
	Device
	info   Info
	epoch  Epoch
	closed int
	fail   error
}

func (s *stub) Info() Info   { return s.info }
func (s *stub) Epoch() Epoch { return s.epoch }
func (s *stub) Close() error { s.closed++; return s.fail }

// stubDriver opens stubs, except for number 13.
type stubDriver struct {
	family Family
	opened *[]*stub
}

var errThirteen = errors.New("thirteen")

func (d stubDriver) Family() Family                            { return d.family }
func (d stubDriver) Discover(context.Context) ([]Found, error) { return nil, nil }

func (d stubDriver) Open(_ context.Context, spec Spec) (Device, error) {
	if spec.Ordinal == 13 {
		return nil, errThirteen
	}
	s := &stub{info: Info{Name: Name(spec.Family) + Name(rune('0'+spec.Ordinal)), Family: spec.Family}}
	if spec.Params["fail"] != "" {
		s.fail = errors.New("close failed")
	}
	*d.opened = append(*d.opened, s)
	return s, nil
}

func TestRegistry(t *testing.T) {
	ctx := t.Context()
	var opened []*stub
	reg := NewRegistry(stubDriver{"sim", &opened}, stubDriver{"host", &opened})
	if got := reg.Drivers(); len(got) != 2 || got[0].Family() != "sim" {
		t.Errorf("drivers %v", got)
	}
	dev, err := reg.Open(ctx, "host:2")
	if err != nil || dev.Info().Name != "host2" {
		t.Errorf("%v, %v", dev, err)
	}
	_, err = reg.Open(ctx, "cuda:0")
	if !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), `unknown family "cuda"; known are host, sim`) {
		t.Errorf("%v", err)
	}
	if _, err := reg.Open(ctx, "sim:13"); !errors.Is(err, errThirteen) || !strings.Contains(err.Error(), `open device "sim:13"`) {
		t.Errorf("%v", err)
	}
	if _, err := reg.Open(ctx, "sim,x"); err == nil {
		t.Error("a bad spec was opened")
	}
}
