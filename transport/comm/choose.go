package comm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/shm"
	"github.com/hmcfs/hmcfs/transport/ucx"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// route is a transport that this rank knows.
type route struct {
	id wire.Transport
	// driver is nil for the data connections, and for an unavailable transport:
	// missing is the reason.
	driver  window.Transport
	missing string
}

// routes returns all transports, the fastest first.
func (o *Options) routes() []route {
	lib := &ucx.Library{}
	over := func(rdma bool) window.Transport {
		u := o.UCX
		u.Engine, u.RDMA = o.Engine, rdma
		return ucx.NewTransport(lib, u)
	}
	all := []route{
		{id: wire.TransportRDMA, driver: over(true)},
		{id: wire.TransportSHM, driver: shm.New(shm.Options{Devices: o.Devices})},
		{id: wire.TransportUCX, driver: over(false)},
		{id: wire.TransportTCP},
	}
	for i := range all {
		r := &all[i]
		listed := slices.Contains(o.Transports, Transport(r.id.String()))
		switch {
		case listed:
		case len(o.Transports) > 0:
			r.driver, r.missing = nil, fmt.Sprintf("%s is configured not to use it", o.Rank)
		case r.id == wire.TransportUCX:
			r.driver, r.missing = nil, fmt.Sprintf("%s does not list it, and without RDMA the other transports are faster", o.Rank)
		}
	}
	return all
}

// closeRoutes closes what the transports have opened. No session is left.
func closeRoutes(routes []route) error {
	var errs []error
	for _, r := range routes {
		if c, ok := r.driver.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// against returns the reason why a transport can't be used in a session; empty
// means that it can.
func (r *route) against(cover wire.Cover) string {
	// The secret encrypts over TCP only; elsewhere shm reports itself that it
	// can't be used.
	local := cover == wire.CoverSecret && r.id == wire.TransportSHM
	if cover.Encrypts() && r.missing == "" && r.driver != nil && !local {
		return "the session is encrypted, and this transport would not be"
	}
	return r.missing
}

// chosen is the transport of a session.
type chosen struct {
	route route
	// because gives the reason why each faster transport is not used.
	because []string
}

// proposal returns the transports that we offer to a peer to which we connect.
func (c *Communicator) proposal(s window.Setting, cover wire.Cover) wire.Ways {
	var out wire.Ways
	for _, r := range c.routes {
		w := wire.Way{Transport: r.id}
		why := r.against(cover)
		if why == "" && r.driver != nil {
			var err error
			if w.Facts, err = r.driver.Propose(s); err != nil {
				why = bareError(r.id, err)
			}
		}
		if w.Usable = why == ""; !w.Usable {
			w.Facts = []byte(why)
		}
		out = append(out, w)
	}
	return out
}

// evaluate chooses among the transports that a peer proposes, and returns the answer
// to it.
func (c *Communicator) evaluate(s window.Setting, cover wire.Cover, proposal wire.Ways) (answer wire.Ways, way *chosen) {
	way = &chosen{}
	for _, r := range c.routes {
		theirs, known := proposal.Find(r.id)
		why := r.against(cover)
		switch {
		case why != "":
		case !known:
			why = fmt.Sprintf("%s does not support it", s.Peer)
		case !theirs.Usable:
			why = wire.Printable(string(theirs.Facts), ' ')
		case r.driver != nil:
			if err := r.driver.Evaluate(s, theirs.Facts); err != nil {
				why = bareError(r.id, err)
			}
		}
		if why == "" {
			way.route = r
			return append(answer, wire.Way{Transport: r.id, Usable: true}), way
		}
		answer = append(answer, wire.Way{Transport: r.id, Facts: []byte(why)})
		way.because = append(way.because, reason(r.id, why))
	}
	return answer, way
}

// taken evaluates the peer's answer to our proposal.
func (c *Communicator) taken(proposal, answer wire.Ways) (*chosen, error) {
	way := &chosen{}
	for i, w := range answer {
		if !w.Usable {
			way.because = append(way.because, reason(w.Transport, wire.Printable(string(w.Facts), ' ')))
			continue
		}
		ours, _ := proposal.Find(w.Transport)
		if i != len(answer)-1 || !ours.Usable {
			return nil, fmt.Errorf("the peer has chosen %s, which was not proposed: %w", w.Transport, wire.ErrFrame)
		}
		way.route = c.routes[slices.IndexFunc(c.routes, func(r route) bool { return r.id == w.Transport })]
	}
	return way, nil
}

// bareError returns a transport's error without its own name, which reason adds.
func bareError(t wire.Transport, err error) string {
	return strings.TrimPrefix(err.Error(), fmt.Sprintf("transport %s: ", t))
}

func reason(t wire.Transport, why string) string { return fmt.Sprintf("%s: %s", t, why) }

// agreed checks that a transport was chosen.
func (w *chosen) agreed(peer wire.Rank) error {
	if w.route.id == 0 {
		return fmt.Errorf("%s: %w: %s", peer, ErrNoTransport, strings.Join(w.because, "; "))
	}
	return nil
}

// setting returns the description of the session for transports.
func (s *session) setting(conn *control.Conn) window.Setting {
	return window.Setting{Conn: conn.Conn, Peer: s.peer, Timeout: s.c.opts.Timeout, Logger: s.c.log}
}

// propose agrees on a transport with a peer to which we connect.
func (s *session) propose(ctx context.Context, conn *control.Conn) error {
	proposal := s.c.proposal(s.setting(conn), conn.Cover)
	var way *chosen
	err := s.timely(ctx, conn, func() error {
		if _, err := conn.Write(proposal.Append(nil, wire.KindProposal)); err != nil {
			return err
		}
		answer, err := readWays(conn, wire.KindChoice)
		if err != nil {
			return err
		}
		way, err = s.c.taken(proposal, answer)
		return err
	})
	if err != nil {
		return fmt.Errorf("agree on a transport with %s: %w", s.peer, err)
	}
	if err = s.decide(way); err != nil {
		return err
	}
	s.leaveControl()
	return nil
}

// readWays reads a proposal, or the answer to it.
func readWays(conn *control.Conn, kind wire.Kind) (wire.Ways, error) {
	_, body, err := control.ReadFrame(conn, kind)
	if err != nil {
		return nil, err
	}
	return wire.ParseWays(body)
}

// choose agrees on a transport with a peer that connects to us.
func (s *session) choose(ctx context.Context, conn *control.Conn) error {
	var way *chosen
	err := s.timely(ctx, conn, func() error {
		proposal, err := readWays(conn, wire.KindProposal)
		if err != nil {
			return err
		}
		var answer wire.Ways
		answer, way = s.c.evaluate(s.setting(conn), conn.Cover, proposal)
		// The peer's next connections may arrive before the write returns.
		if err = s.decide(way); err != nil && !errors.Is(err, ErrNoTransport) {
			return err
		}
		_, err = conn.Write(answer.Append(nil, wire.KindChoice))
		return err
	})
	if err != nil {
		return fmt.Errorf("agree on a transport with %s: %w", s.peer, err)
	}
	if err = way.agreed(s.peer); err != nil {
		return err
	}
	s.leaveControl()
	return nil
}

// leaveControl leaves the control connection to the link, since the agreement is
// complete.
func (s *session) leaveControl() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agreed = true
}

// decide records the transport of the session.
func (s *session) decide(way *chosen) error {
	if err := way.agreed(s.peer); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return s.errLocked()
	}
	s.way = way
	return nil
}

// timely runs an exchange within the handshake timeout and the context.
func (s *session) timely(ctx context.Context, conn net.Conn, fn func() error) error {
	return control.Timely(ctx, conn, s.c.opts.HandshakeTimeout, fn)
}
