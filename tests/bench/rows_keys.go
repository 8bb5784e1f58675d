package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// keyRows measures the cost of unused keys.
func (l *lab) keyRows() []row {
	k := &keyStores{lab: l}
	return []row{
		{
			name: "keys: time to open the records", unit: seconds,
			sides: []side{
				{Name: "all keys", Prepare: k.build, Run: k.open("full")},
				{Name: "no keys", Prepare: k.build, Run: k.open("empty")},
				{Name: "hmcfs mount, all keys", Prepare: k.build, Run: k.mount("full", tookToMount)},
				{Name: "hmcfs mount, no keys", Prepare: k.build, Run: k.mount("empty", tookToMount)},
			},
			wants: []want{
				{of: "all keys", bound: 2, atMost: true},
				{of: "hmcfs mount, all keys", bound: 2, atMost: true},
			},
			notes: []string{
				fmt.Sprintf("%d files with a buffer mapping and a key each, in directories of 1000, in Badger. Opened in a new process by", l.opts.keys),
				"metadata.Open, and by mounting that state directory.",
			},
		},
		{
			name: "keys: daemon memory of each", unit: byteUnit,
			custom: k.memory,
			wants:  []want{{of: "of each key", bound: 600, atMost: true}},
			notes: []string{
				"Pss of the daemon that mounted that state directory − Pss of one that mounted an empty one, divided by the keys,",
				"right after the mount.",
			},
			after: k.remove,
		},
	}
}

// keyStores holds two state directories: full has the keys, empty has none.
type keyStores struct {
	lab   *lab
	built bool
}

func (k *keyStores) state(name string) string { return filepath.Join(k.lab.dir, "keys-"+name) }

// build creates both state directories once, in a separate process.
func (k *keyStores) build(ctx context.Context) error {
	if k.built {
		return nil
	}
	for name, n := range map[string]int{"full": k.lab.opts.keys, "empty": 0} {
		if _, err := child(ctx, exec.CommandContext, "build", k.state(name), strconv.Itoa(n)); err != nil {
			return err
		}
	}
	k.built = true
	return nil
}

// open opens the records in a separate process and returns the seconds.
func (k *keyStores) open(name string) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		return child(ctx, exec.CommandContext, "open", k.state(name))
	}
}

// mount mounts a state directory, measures, and unmounts in such a way that the records
// remain.
func (k *keyStores) mount(name string, see func(context.Context, *measure.Mount) (float64, error)) func(context.Context) (float64, error) {
	return func(ctx context.Context) (v float64, err error) {
		m, err := k.lab.mountOn(ctx, "keys", k.state(name), "host,size=64MiB", "sim:0,size=64MiB")
		if err != nil {
			return 0, err
		}
		defer func() {
			err = errors.Join(err, m.Unmount(ctx, "--keep"))
			m.DropHost()
		}()
		return see(ctx, m)
	}
}

func tookToMount(_ context.Context, m *measure.Mount) (float64, error) { return m.Took.Seconds(), nil }

func takenMemory(ctx context.Context, m *measure.Mount) (float64, error) {
	s, err := sampleOf(ctx, m)
	return s.pss, err
}

func (k *keyStores) memory(ctx context.Context, rounds int) (result, error) {
	res, err := inTurns(ctx, rounds, []side{
		{Name: "daemon with all keys", Prepare: k.build, Run: k.mount("full", takenMemory)},
		{Name: "daemon with none", Prepare: k.build, Run: k.mount("empty", takenMemory)},
	})
	if err != nil {
		return res, err
	}
	var each bench.Series
	for i, full := range res.figures[0].series {
		each = append(each, (full-res.figures[1].series[i])/float64(k.lab.opts.keys))
	}
	res.figures = append([]figure{{"of each key", each}}, res.figures...)
	return res, nil
}

func (k *keyStores) remove() error {
	k.built = false
	return removeAll(k.state("full"), k.state("empty"))
}
