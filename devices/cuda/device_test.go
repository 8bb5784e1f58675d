package cuda

import (
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/devicetest"
)

func TestConformance(t *testing.T) {
	lib := newStandIn(t)
	for name, settings := range map[string][]string{
		"virtual memory": {"memory=100000000"},
		"plain memory":   {"memory=100000000", "vmm=0"},
		"no peers":       {"memory=100000000", "peer=0"},
	} {
		t.Run(name, func(t *testing.T) {
			d := lib.with(t, settings...).driver()
			next := map[string]int{}
			devicetest.Run(t, func(t *testing.T) devices.Device {
				// The second device of a check is another card.
				spec := []string{"cuda:0", "cuda:1"}[next[t.Name()]%2]
				next[t.Name()]++
				return open(t, d, spec)
			})
		})
	}
}

// TestShared shares memory with another process; see RunShared.
func TestShared(t *testing.T) {
	d := newStandIn(t).driver()
	devicetest.RunShared(t, func(t *testing.T) devices.Device { return open(t, d, "cuda:1") })
}
