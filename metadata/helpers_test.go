package metadata_test

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// fixture is an empty store on a memkv with two devices.
type fixture struct {
	*metadata.Store
	t          *testing.T
	kv         metadata.KV
	sim0, sim1 metadata.Ino
	clock      *testClock
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, kv: memkv.New(), clock: &testClock{}}
	var err error
	if f.Store, err = metadata.Open(t.Context(), f.kv, metadata.Options{Now: f.clock.now}); err != nil {
		t.Fatal(err)
	}
	f.sim0, f.sim1 = f.device("sim0"), f.device("sim1")
	t.Cleanup(func() { checkStore(t, f.Store) })
	return f
}

func (f *fixture) device(name metadata.DeviceName) metadata.Ino {
	f.t.Helper()
	return f.must(f.EnsureDevice(f.t.Context(), name, 0o755, 0, 0)).Ino
}

// must fails the test if an operation failed.
func (f *fixture) must(in metadata.Inode, err error) metadata.Inode {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
	return in
}

func (f *fixture) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) mkdir(parent metadata.Ino, name string) metadata.Ino {
	f.t.Helper()
	return f.must(f.Create(f.t.Context(), parent, name, dirNode())).Ino
}

func (f *fixture) touch(parent metadata.Ino, name string) metadata.Ino {
	f.t.Helper()
	return f.must(f.Create(f.t.Context(), parent, name, benchFile())).Ino
}

// fails fails the test unless an operation failed with want.
func fails(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}
