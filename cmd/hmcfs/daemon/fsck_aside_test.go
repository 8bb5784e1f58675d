package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// asideTier makes the host tier of a runtime directory, in which an owner has set one
// file aside.
func asideTier(t *testing.T, dir, owner string) *host.Device {
	t.Helper()
	spec, err := devices.ParseSpec("host,size=1MiB")
	if err != nil {
		t.Fatal(err)
	}
	dev, err := host.NewDriver(host.Options{Dir: dir}).Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeTier(dir) })
	tier, ok := dev.(*host.Device)
	if !ok {
		t.Fatalf("the host tier is a %T", dev)
	}
	files := tier.Files()
	err = files.Claim(owner)
	for _, id := range []uint64{7, 8} {
		f, openErr := files.Open(id, true)
		if err = errors.Join(err, openErr); err != nil {
			t.Fatal(err)
		}
		_, writeErr := f.WriteString("bytes")
		err = errors.Join(err, writeErr, f.Close())
	}
	if err = errors.Join(err, files.SetAside(7)); err != nil {
		t.Fatal(err)
	}
	return tier
}

// generationOf returns the note of an owner that a state's records leave in host memory.
func generationOf(t *testing.T, p place.Paths) string {
	t.Helper()
	kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: p.Metadata()})
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.Open(t.Context(), kv, metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err = meta.Close(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%016x", uint64(meta.Generation()))
}

// TestCheckStateLeavesOtherTiers checks records whose runtime directory now contains the
// host memory of other records, or of a running mount: none of it is listed or removed.
// Their own memory is.
func TestCheckStateLeavesOtherTiers(t *testing.T) {
	for _, test := range []struct {
		name  string
		owner func(own string) string
		open  bool
		want  int
	}{
		{"its own", func(own string) string { return own }, false, 1},
		{"of other records", func(string) string { return "0123456789abcdef" }, false, 0},
		{"in use", func(own string) string { return own }, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := makeState(t)
			p.Runtime = filepath.Join(t.TempDir(), "run")
			if err := os.Mkdir(p.Runtime, 0o700); err != nil {
				t.Fatal(err)
			}
			lock, err := place.Acquire(p.StateLock(), place.Holder{PID: 1, RuntimeDir: p.Runtime})
			if err != nil {
				t.Fatal(err)
			}
			lock.Release()
			tier := asideTier(t, p.Runtime, test.owner(generationOf(t, p)))
			if !test.open {
				err = tier.Close()
			}
			report, checkErr := CheckState(t.Context(), p.State, adminapi.FsckRequest{RemoveAside: true})
			if test.open {
				err = tier.Close()
			}
			if err = errors.Join(err, checkErr); err != nil || len(report.Aside) != test.want || report.RemovedAside != test.want {
				t.Errorf("%d are listed, %d removed, %v, want %d", len(report.Aside), report.RemovedAside, err, test.want)
			}
		})
	}
}

// TestMissingRecordsKeepTheirWitness mounts without the records of existing host memory:
// the mount is refused, and the witness that identifies the records stays.
func TestMissingRecordsKeepTheirWitness(t *testing.T) {
	dir := t.TempDir()
	p := place.Paths{State: filepath.Join(dir, "state"), Runtime: filepath.Join(dir, "run")}
	if err := errors.Join(os.Mkdir(p.State, 0o700), os.Mkdir(p.Runtime, 0o700)); err != nil {
		t.Fatal(err)
	}
	tier := asideTier(t, p.Runtime, "0123456789abcdef")
	if err := os.WriteFile(p.Witness(), []byte("witness"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &Daemon{opts: Options{Places: p, Settings: &config.Settings{}}, devs: []devices.Device{tier}}
	var back undo
	err := d.openRecords(t.Context(), &back)
	back.run()
	if !errors.Is(err, devices.ErrForeign) || !strings.Contains(err.Error(), "mount with the state directory") {
		t.Errorf("openRecords = %v, want ErrForeign", err)
	}
	if text, readErr := os.ReadFile(p.Witness()); string(text) != "witness" {
		t.Errorf("the witness is %q, %v", text, readErr)
	}
	if names, readErr := os.ReadDir(p.State); len(names) > 0 || readErr != nil {
		t.Errorf("the state directory has %v, %v", names, readErr)
	}
	if err = tier.Close(); err != nil {
		t.Error(err)
	}
}
