package cudalike

import (
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

func TestPeerings(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		got, err := devices.Peerings(t.Context(), v.onStandin(t))
		if want := []devices.Peering{{A: 0, B: 1}}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
		v.configure(t, "peer=0\n")
		if got, err = devices.Peerings(t.Context(), v.onStandin(t)); err != nil || len(got) != 0 {
			t.Errorf("out of reach: %v, %v", got, err)
		}
	})
}
