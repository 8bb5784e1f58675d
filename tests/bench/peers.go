package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/tests/netns"
)

// peers are those with which the rows of the communicator are measured: two places
// that reach each other over loopback, and two over a cable.
type peers struct {
	undo

	opts     options
	dir      string
	secret   string
	lo, veth *spot
	// ucx is lo with servers that have UCX_TLS, by its value.
	ucx map[string]*spot
	// device is lo with both ends' memory on a device, by its name.
	device map[string]*spot
	cable  *netns.Cable
}

// spot is a place in which a side of a row runs: a server, and who measures.
type spot struct {
	// host is the server's address.
	host string
	// serve and run make a command at either end.
	serve, run func(ctx context.Context, name string, args ...string) *exec.Cmd
	// at are the addresses of the server of hmcfs: TCP, and a Unix socket
	// where both ends are on one host.
	at []string
	// env has what both ends have in their environment besides.
	env []string
	// flags are further ones of hmcfs perf at both ends.
	flags []string
}

// unix is the spot by its Unix socket.
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

// newPeers sets everything up, or leaves nothing behind.
func newPeers(ctx context.Context, o options) (p *peers, err error) {
	p = &peers{opts: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.opts.hmcfs, err = filepath.Abs(o.hmcfs); err != nil {
		return p, err
	}
	if p.dir, err = p.folder(); err != nil {
		return p, err
	}
	p.secret = filepath.Join(p.dir, "secret")
	p.lo = &spot{host: "127.0.0.1", serve: exec.CommandContext, run: exec.CommandContext}
	if err = p.serve(ctx, p.lo, "unix:"+filepath.Join(p.dir, "socket")); err != nil {
		return p, err
	}
	p.ucx = map[string]*spot{}
	for _, tls := range ucxLists() {
		s := &spot{
			host: p.lo.host, serve: exec.CommandContext, run: exec.CommandContext, env: ucxEnv(tls),
			flags: []string{"--ucx-tls", tls, "--ucx-one-sided"},
		}
		if err = p.serve(ctx, s); err != nil {
			return p, err
		}
		p.ucx[tls] = s
	}
	p.device = map[string]*spot{}
	for i, name := range deviceNames() {
		s := &spot{
			host: p.lo.host, serve: exec.CommandContext, run: exec.CommandContext,
			flags: []string{"--memory", fmt.Sprintf("%s,size=%d", name, 2*uint64(o.large))},
		}
		if err = p.serve(ctx, s, fmt.Sprintf("unix:%s-%d", filepath.Join(p.dir, "device"), i)); err != nil {
			return p, err
		}
		p.device[name] = s
	}
	if p.cable, err = netns.New(ctx); err != nil {
		return p, err
	}
	p.later(p.cable.Close)
	p.veth = &spot{host: p.cable.Right.IPv4, serve: p.cable.Right.Command, run: p.cable.Left.Command}
	return p, p.serve(ctx, p.veth)
}

// runPeers measures the rows of the communicator, and writes them and the
// picture where that is asked for.
func runPeers(ctx context.Context, o options, out, progress io.Writer) (err error) {
	p, err := newPeers(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err = table(ctx, o, p, peersBegin, out, progress); err != nil || !o.write {
		return err
	}
	if err = p.picture(ctx, progress); err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	return nil
}

// facts looks at the machine and its programs.
func (p *peers) facts(ctx context.Context) *facts {
	f := &facts{loadBefore: load()}
	f.machine(ctx, p.opts.hmcfs)
	f.add("Go", runtime.Version())
	f.add("iperf3", said(ctx, "iperf3", "--version"))
	f.add("UCX", said(ctx, "ucx_info", "-v"))
	f.last = fmt.Sprintf("- medians of %d rounds; who measures and who serves are two processes\n\n", p.opts.rounds)
	return f
}

// rows lists the rows of the table in order.
func (p *peers) rows() []row {
	return slices.Concat(
		p.streamRows(), p.besideUCXRows(), p.sharedRows(), p.deviceRows(), p.ucxRows(), p.tagRows(), p.domainRows(), p.allocationRows(), p.cableRows(),
	)
}

// patience bounds the time of a program of a row.
const patience = 5 * time.Minute
