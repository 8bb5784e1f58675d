package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/tests/measure"
	"github.com/hmcfs/hmcfs/tests/netns"
)

// peers holds the places between which the rows of the communicator are measured: two that
// reach each other over loopback, and two over a cable.
type peers struct {
	measure.Undo

	opts     options
	dir      string
	secret   string
	lo, veth *spot
	// ucx is lo with servers that have UCX_TLS set, by its value.
	ucx map[string]*spot
	// device is lo with both ends' memory on a device, by its name.
	device map[string]*spot
	cable  *netns.Cable
}

// spot is a place in which a side of a row runs: a server, and the process that measures.
type spot struct {
	// host is the server's address.
	host string
	// serve and run create a command at either end.
	serve, run measure.Command
	// at holds the addresses of the server of hmcfs: TCP, and a Unix socket if both ends are
	// on one host.
	at []string
	// env is added to the environment of both ends.
	env []string
	// flags holds further flags of hmcfs perf at both ends.
	flags []string
}

// here returns a spot for two processes on this machine.
func here(env []string, flags ...string) *spot {
	return &spot{host: "127.0.0.1", serve: exec.CommandContext, run: exec.CommandContext, env: env, flags: flags}
}

// unix returns the spot with its Unix socket.
func (s *spot) unix() *spot {
	by := *s
	by.at = s.at[1:]
	return &by
}

// within adds the spot's environment to a command's.
func (s *spot) within(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(os.Environ(), s.env...)
	return cmd
}

// setUp starts all servers.
func (p *peers) setUp(ctx context.Context) (err error) {
	if p.dir, err = p.Folder(); err != nil {
		return err
	}
	p.secret = filepath.Join(p.dir, "secret")
	p.lo = here(nil)
	if err = p.serve(ctx, p.lo, "unix:"+filepath.Join(p.dir, "socket")); err != nil {
		return err
	}
	p.ucx = map[string]*spot{}
	for _, tls := range ucxLists() {
		s := here(ucxEnv(tls), "--ucx-tls", tls, "--ucx-one-sided")
		if err = p.serve(ctx, s); err != nil {
			return err
		}
		p.ucx[tls] = s
	}
	p.device = map[string]*spot{}
	for i, name := range deviceNames() {
		s := here(nil, "--memory", fmt.Sprintf("%s,size=%d", name, 2*uint64(p.opts.large)))
		if err = p.serve(ctx, s, fmt.Sprintf("unix:%s-%d", filepath.Join(p.dir, "device"), i)); err != nil {
			return err
		}
		p.device[name] = s
	}
	if p.cable, err = netns.New(ctx); err != nil {
		return err
	}
	p.Later(p.cable.Close)
	p.veth = &spot{host: p.cable.Right.IPv4, serve: p.cable.Right.Command, run: p.cable.Left.Command}
	return p.serve(ctx, p.veth)
}

// facts collects facts about the machine and its programs.
func (p *peers) facts(ctx context.Context) *facts {
	f := newFacts(ctx, p.opts)
	f.add("Go", runtime.Version())
	f.add("iperf3", measure.Said(ctx, "iperf3", "--version"))
	f.add("UCX", measure.Said(ctx, "ucx_info", "-v"))
	f.last = fmt.Sprintf("- medians of %d rounds; who measures and who serves are two processes\n\n", p.opts.rounds)
	return f
}

// rows lists the rows of the table in order.
func (p *peers) rows() []row {
	return slices.Concat(
		p.streamRows(), p.besideUCXRows(), p.sharedRows(), p.deviceRows(), p.ucxRows(), p.tagRows(), p.domainRows(), p.allocationRows(), p.cableRows(),
	)
}

// patience is the timeout for a program of a row.
const patience = 5 * time.Minute
