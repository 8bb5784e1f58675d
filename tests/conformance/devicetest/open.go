package devicetest

import (
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// Open opens the device of a spec such as "sim:0,size=1MiB". The caller closes it.
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
