package vendor

import (
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/devicetest"
)

// TestDevices runs the suite; the two devices that some checks open are two
// cards. The stand-in forgets the thread's device after every piece of work, so
// no call goes without device.on.
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
