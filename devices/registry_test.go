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

func TestOpenAllOrNone(t *testing.T) {
	ctx := t.Context()
	for name, tt := range map[string]struct {
		specs  []string
		opened int
		says   string
	}{
		"all":            {[]string{"sim:0", "sim:1", "host"}, 3, ""},
		"none":           {nil, 0, ""},
		"fault":          {[]string{"sim:0", "host", "sim:13", "sim:2"}, 2, "thirteen"},
		"twice":          {[]string{"sim:0", "sim:0,size=1"}, 2, `"sim:0" and "sim:0,size=1" are both sim0`},
		"failing close":  {[]string{"sim:0,fail=yes", "sim:13"}, 1, "close failed"},
		"unknown family": {[]string{"sim:0", "opencl:0"}, 1, "unknown family"},
	} {
		t.Run(name, func(t *testing.T) {
			var opened []*stub
			reg := NewRegistry(stubDriver{"sim", &opened}, stubDriver{"host", &opened})
			devs, err := reg.OpenAll(ctx, tt.specs)
			if len(opened) != tt.opened {
				t.Errorf("%d opened, want %d", len(opened), tt.opened)
			}
			if tt.says == "" {
				if err != nil || len(devs) != len(tt.specs) {
					t.Errorf("%v, %v", devs, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) || devs != nil {
				t.Errorf("%v, %v; want %q", devs, err, tt.says)
			}
			for _, s := range opened {
				if s.closed != 1 {
					t.Errorf("%s closed %d times", s.info.Name, s.closed)
				}
			}
		})
	}
}
