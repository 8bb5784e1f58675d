package mnt

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

func TestParseFaults(t *testing.T) {
	const text = "sim0 copy-in every 2 error\n\n* alloc at 1 memory\nsim1 * every 1 lost\nsim2 copy-in from 0 error\n"
	for _, tc := range []struct {
		device string
		want   []error
	}{
		{"sim0", []error{nil, devices.ErrDevice, nil, devices.ErrOutOfMemory}},
		{"sim1", []error{devices.ErrLost, devices.ErrLost, devices.ErrLost, devices.ErrOutOfMemory}},
		{"sim2", []error{devices.ErrDevice, devices.ErrDevice, nil, devices.ErrOutOfMemory}},
		{"host", []error{nil, nil, nil, devices.ErrOutOfMemory}},
	} {
		rules, err := parseFaults(text, tc.device)
		if err != nil {
			t.Fatal(err)
		}
		for i, op := range []string{"copy-in", "copy-in", "alloc", "alloc"} {
			if got := rules.Before(t.Context(), op); !errors.Is(got, tc.want[i]) {
				t.Errorf("%s: operation %d (%s) gave %v, want %v", tc.device, i, op, got, tc.want[i])
			}
		}
	}
}

func TestParseFaultsRefuses(t *testing.T) {
	for _, bad := range []string{
		"sim0", "sim0 copy every", "sim0 copy every x error", "sim0 copy never 1 error",
		"sim0 copy every 1 nonsense", "sim0 copy every 1", "sim0 copy delay soon",
	} {
		if _, err := parseFaults(bad, "sim0"); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
