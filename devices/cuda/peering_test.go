package cuda

import (
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

func TestPeerings(t *testing.T) {
	got, err := devices.Peerings(t.Context(), newStandIn(t, "devices=3").driver())
	want := []devices.Peering{{A: 0, B: 1}, {A: 0, B: 2, Rank: 1}, {A: 1, B: 2, Rank: 1}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	lib := newStandIn(t, "devices=3", "fail=cuDeviceGetP2PAttribute:9:1")
	if got, err = devices.Peerings(t.Context(), lib.driver()); err != nil || len(got) != 3 {
		t.Errorf("without ranks: %v, %v", got, err)
	}
	if got, err = devices.Peerings(t.Context(), newStandIn(t, "peer=0").driver()); err != nil || len(got) != 0 {
		t.Errorf("without peers: %v, %v", got, err)
	}
	lib = newStandIn(t, "fail=cuDeviceCanAccessPeer:1:3")
	if got, err = devices.Peerings(t.Context(), lib.driver()); err == nil {
		t.Errorf("a driver that fails: %v", got)
	}
}
