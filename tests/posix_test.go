package tests

import (
	"maps"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestPosix runs go-fuse's conformance tests on each kind of device. A known deviation is
// skipped with its reason, which is documented in docs/semantics.md.
func TestPosix(t *testing.T) {
	kit.Check(t)
	useStandInCards(t, "memory=536870912")
	o := mnt.Options{Devices: []string{"host,size=256MiB", "sim:0,size=256MiB", "sim:1,size=256MiB,mapped=true", "cuda:0,size=256MiB"}}
	names := []string{"host", "sim0", "sim1", "cuda0"}
	if kit.Missing("opencl") == nil {
		o.Devices = append(o.Devices, "opencl:0,size=256MiB")
		names = append(names, "ocl0")
	}
	m := mnt.Mount(t, o)
	for _, device := range names {
		t.Run(device, func(t *testing.T) {
			for _, name := range slices.Sorted(maps.Keys(posixtest.All)) {
				t.Run(name, func(t *testing.T) {
					if reason := deviations()[name]; reason != "" {
						t.Skip(reason)
					}
					posixtest.All[name](t, openDir(t, m.Path(device)))
				})
			}
		})
	}
}

// deviations returns the tests of go-fuse that hmcfs does not pass, by design.
func deviations() map[string]string {
	return map[string]string{
		"FcntlFlockLocksFile": "fcntl locks belong to the process, so it is not in its own way; tmpfs grants them too",
	}
}
