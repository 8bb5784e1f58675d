package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"github.com/hmcfs/hmcfs/tests/measure"
)

// held measures mounts that outlive their daemons: the pauses when these are replaced, and what the holder costs beside a mount
// without one.
type held struct {
	measure.Undo

	opts options
	lab  *lab // only its directory, and the mount whose daemon is replaced
}

// setUp makes the mount whose daemon is replaced.
func (h *held) setUp(ctx context.Context) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("mounting with passthrough needs root")
	}
	if h.lab.dir, err = h.Folder(); err != nil {
		return err
	}
	h.Later(h.lab.Close)
	h.lab.mnt, err = h.lab.mountAt(ctx, "held", "host,size=64MiB", "sim:0,size=64MiB", "opencl:0,size=64MiB")
	return err
}

// facts collects facts about the machine and its programs.
func (h *held) facts(ctx context.Context) *facts {
	f := newFacts(ctx, h.opts)
	f.add("Go", runtime.Version())
	f.last = fmt.Sprintf("- %d deaths and %d upgrades; medians of %d rounds of %d turns for what the holder costs\n\n",
		h.opts.deaths, h.opts.deaths, h.opts.rounds, heldTurns)
	return f
}

// rows lists the rows of the table in order.
func (h *held) rows() []row { return slices.Concat(h.pauseRows(), h.costRows()) }
