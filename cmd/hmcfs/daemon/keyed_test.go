package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/heterotest"
	"github.com/hmcfs/hmcfs/tests/keyworld"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// unmounted is a daemon without a mount, which answers on its socket. It ends with the
// test.
func unmounted(t *testing.T, specs ...string) *Daemon {
	t.Helper()
	root, err := os.MkdirTemp("", "hmcfs-daemon-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	dir := func(name string) string { return filepath.Join(root, name) }
	if err = os.Mkdir(dir("mnt"), 0o755); err != nil {
		t.Fatal(err)
	}
	settings := new(config.Settings)
	settings.Devices = specs
	d := &Daemon{
		opts: Options{
			Settings: settings, UID: os.Getuid(),
			Places: place.Paths{MountPoint: dir("mnt"), State: dir("state"), Runtime: dir("run"), DefaultRuntime: dir("run")},
		},
		started: time.Now(), over: make(chan struct{}), gone: make(chan struct{}),
	}
	d.opts.ensureDefaults()
	d.log = d.opts.Logger
	var back undo
	for _, step := range []func(context.Context, *undo) error{d.takePlaces, d.openDevices, d.openRecords, d.openStore, d.listen} {
		if err = step(t.Context(), &back); err != nil {
			back.run()
			t.Skipf("needs a host tier: %v", err)
		}
	}
	back.release()
	t.Cleanup(func() {
		if ferr := d.finish(context.Background(), false, nil); ferr != nil {
			t.Error(ferr)
		}
	})
	return d
}

// TestSessionSuite runs the conformance suite over sessions.
func TestSessionSuite(t *testing.T) {
	for name, names := range map[string][]devices.Name{
		"sim":  {"sim0", "sim1"},
		"host": {"host", "sim0"},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			d := unmounted(t, "host,size=64MiB", "sim:0,size=256MiB", "sim:1,size=256MiB")
			heterotest.Run(t, keyworld.New(d.opts.Places.Socket(), keyworld.Options{
				Devices: names, HostRoom: 64 * devices.MiB,
			}))
		})
	}
}
