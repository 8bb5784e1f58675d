package objects_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/keep"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// keptRig is a rig whose memory outlives kills.
type keptRig struct {
	*rig
	keeper *keep.Store
	params []sim.Params
	// open opens the devices of the next store; nil for simulated ones.
	open func() []devices.Device
}

func newKeptRig(t *testing.T, params ...sim.Params) *keptRig {
	t.Helper()
	kit.Check(t)
	k := &keptRig{keeper: newKeeper(t), params: params}
	k.rig = &rig{t: t, keeper: k.keeper}
	k.devs = k.newDevices()
	k.start()
	t.Cleanup(k.stop)
	return k
}

func (k *keptRig) newDevices() (devs []devices.Device) {
	for i, p := range k.params {
		devs = append(devs, sim.New(devices.Ordinal(i), p))
	}
	return devs
}

// kill ends the store as the death of the process does, and starts the next one over what
// the keeper and the records have.
func (k *keptRig) kill() {
	k.t.Helper()
	k.killAnd(func() {})
	k.checkLeases()
}

// killAnd is kill with something that happens before the next start.
func (k *keptRig) killAnd(then func()) {
	k.t.Helper()
	k.store.Abandon()
	for _, d := range k.devs {
		if err := d.Close(); err != nil {
			k.t.Fatal(err)
		}
	}
	if err := k.engine.Close(); err != nil {
		k.t.Fatal(err)
	}
	then()
	if k.open != nil {
		k.devs = k.open()
	} else {
		k.devs = k.newDevices()
	}
	var err error
	if k.meta, err = metadata.Open(k.ctx(), k.kv, metadata.Options{KeepNameless: true}); err != nil {
		k.t.Fatal(err)
	}
	if k.engine, err = transport.New(k.moves); err != nil {
		k.t.Fatal(err)
	}
	k.reopen()
}

// checkLeases compares the leased memory with the sum of the records.
func (k *keptRig) checkLeases() {
	k.t.Helper()
	want := map[metadata.DeviceName]uint64{}
	err := k.meta.Walk(k.ctx(), func(in metadata.Inode) error {
		if in.IsRegular() && in.Bound == metadata.Unbound && k.attr(in.Ino).State == objects.StateLive {
			want[in.Device] += in.Allocated
		}
		return nil
	})
	if err != nil {
		k.t.Fatal(err)
	}
	for _, ino := range k.store.Orphans() {
		a := k.attr(ino)
		want[a.Device] += a.Allocated
	}
	for _, d := range k.devs {
		name := d.Info().Name
		if used := uint64(k.used(name)); used != want[metadata.DeviceName(name)] {
			k.t.Fatalf("%s has %d bytes leased, the records say %d", name, used, want[metadata.DeviceName(name)])
		}
	}
}

// TestKilledStores is TestRandomOperations with stores that die between two operations.
func TestKilledStores(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		t.Run(fmt.Sprintf("mapped=%v", mapped), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			k := newKeptRig(t, small(mapped), sim.Params{Size: 32 << 20})
			m := &model{
				rng: rand.New(rand.NewPCG(seed, 1)), max: 3 << 20, longest: 300 << 10, devs: []string{"sim0", "sim1"}, rig: k.rig,
			}
			m.kill = func() {
				inos := make([]objects.Ino, len(m.files))
				for i, f := range m.files {
					inos[i] = f.Ino()
				}
				k.kill()
				for i, ino := range inos {
					m.files[i] = k.rig.open(ino)
					m.check(i)
				}
			}
			m.run(600)
		})
	}
}
