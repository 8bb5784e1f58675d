package tests

import (
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/heterotest"
	"github.com/hmcfs/hmcfs/tests/keyworld"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// The suite on the real daemon.
func TestHeteroSuite(t *testing.T) {
	worlds := map[string][]devices.Name{"sim": {"sim0", "sim1"}}
	if kit.Exhaustive() { // without a daemon, objects/hetero/local always runs it
		worlds["host"] = []devices.Name{"host", "sim0"}
	}
	for name, names := range worlds {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=256MiB", "sim:1,size=256MiB"}})
			heterotest.Run(t, keyworld.New(socketOf(m), keyworld.Options{Devices: names, HostRoom: 64 * devices.MiB}))
		})
	}
}

// socketOf returns the path of the socket of a mount's daemon.
func socketOf(m *mnt.M) string { return filepath.Join(m.RuntimeDir, "admin.sock") }
