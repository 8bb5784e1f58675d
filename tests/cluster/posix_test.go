package cluster

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestPosix runs go-fuse's conformance tests through node a on the devices of node b, as
// tests.TestPosix does on a mount's own devices.
func TestPosix(t *testing.T) {
	kit.Check(t)
	specs, names := devicesOf(t)
	_, nodes := newNodes(t, worldOptions{machines: 2, devices: specs})
	for _, device := range names {
		t.Run(device, func(t *testing.T) {
			for _, name := range slices.Sorted(maps.Keys(posixtest.All)) {
				t.Run(name, func(t *testing.T) {
					if reason := deviations()[name]; reason != "" {
						t.Skip(reason)
					}
					dir, err := os.MkdirTemp(nodes[0].at("b", device), "") //nolint:usetesting // it is to be in the mount
					must(t, err)
					must(t, os.Chmod(dir, 0o777))
					posixtest.All[name](t, dir)
				})
			}
		})
	}
}

// deviations are the tests of go-fuse that files of other nodes do not pass, by design.
func deviations() map[string]string {
	return map[string]string{
		"OpenSymlinkRace":     "a name of another node that is replaced between each lookup and its open is ESTALE, as with NFS",
		"FcntlFlockLocksFile": "fcntl locks belong to the process, so it is not in its own way; tmpfs grants them too",
	}
}
