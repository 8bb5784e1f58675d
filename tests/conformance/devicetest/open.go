package devicetest

import (
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// Open opens the device that a spec names, such as "sim:0,size=1MiB". It is the
// caller's to close.
func Open(t testing.TB, driver devices.Driver, text string) devices.Device {
	t.Helper()
	spec, err := devices.ParseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	d, err := driver.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
