package cudalike

import (
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/devicetest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestDevices runs the suite; the two devices that some checks open are two cards. The
// stand-in forgets the thread's device after every piece of work, so that a call outside of
// device.On is detected.
func TestDevices(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		var opened atomic.Int64
		driver := v.onStandin(t)
		devicetest.Run(t, func(t *testing.T) devices.Device {
			ordinal := int(opened.Add(1)-1) % 2
			if ordinal == 0 {
				t.Cleanup(func() {
					opened.Store(0)
					if left := v.left(t); left != "" && !t.Failed() {
						t.Errorf("left: %s", left)
					}
				})
			}
			spec, err := devices.ParseSpec(string(v.name) + ":" + string(rune('0'+ordinal)) + ",size=40MiB")
			if err != nil {
				t.Fatal(err)
			}
			dev, err := driver.Open(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			return dev
		})
	})
}

// TestSharedHIP and the tests below run in two processes, which find each other by the
// test's name; so there is one test for each vendor.
func TestSharedHIP(t *testing.T)       { runShared(t, HIP) }
func TestSharedCambricon(t *testing.T) { runShared(t, Cambricon) }
func TestSharedMUSA(t *testing.T)      { runShared(t, MUSA) }
func TestSharedAscend(t *testing.T)    { runShared(t, Ascend) }

func runShared(t *testing.T, family devices.Family) {
	t.Helper()
	kit.Require(t, "tool:cc")
	for _, v := range vendors() {
		if v.name == family {
			devicetest.RunShared(t, func(t *testing.T) devices.Device { return v.open(t, 1) })
		}
	}
}
