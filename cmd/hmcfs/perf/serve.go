package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// serverRank and runnerRank are the two ranks of a measurement.
const (
	serverRank wire.Rank = 0
	runnerRank wire.Rank = 1
)

// What a runner asks for.
const (
	askOpen   = "open"
	askFill   = "fill"
	askVerify = "verify"
	askEcho   = "echo"
	askEnd    = "end"
)

// ask is a message of the runner.
type ask struct {
	Do     string       `json:"do"`
	Memory devices.Name `json:"memory,omitempty"`
	Size   devices.Size `json:"size,omitempty"`
	Seed   uint64       `json:"seed,omitempty"`
	Count  int          `json:"count,omitempty"`
	// Last says that no other session of this runner follows.
	Last bool `json:"last,omitempty"`
}

// reply is what the server has to say to it.
type reply struct {
	Error string `json:"error,omitempty"`
	// Descriptor is the memory that was opened.
	Descriptor []byte `json:"descriptor,omitempty"`
	// Differs is the first byte that is not as it should be, -1 is none.
	Differs int64 `json:"differs"`
}

// ServeOptions is what a server is made with.
type ServeOptions struct {
	Options

	// Listen is where; at least one.
	Listen []control.Address
	// Transports are those that a runner may take; none is all of them.
	Transports []comm.Transport
	// Once ends the server when its first runner has gone. One that goes
	// before its end is an error then.
	Once bool
	// Listening is told of each address, with the port that the kernel chose.
	// Required.
	Listening func(control.Address) error
}

// Validate reports every fault of the options at once, joined.
func (o *ServeOptions) Validate() error {
	var faults []error
	if len(o.Listen) == 0 {
		faults = append(faults, errors.New("nowhere to listen: give an address"))
	}
	for _, t := range o.Transports {
		faults = append(faults, checkTransport(t))
	}
	return errors.Join(faults...)
}

// Serve serves runners, one after the other, until the context ends.
func Serve(ctx context.Context, o ServeOptions) (err error) {
	if err = o.Validate(); err != nil {
		return err
	}
	o.Rank = serverRank
	s, err := newStation(ctx, &o.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(o.Transports); err != nil {
		return err
	}
	for _, at := range o.Listen {
		real, err := s.comm.Listen(ctx, at)
		if err != nil {
			return err
		}
		if err := o.Listening(real); err != nil {
			return err
		}
	}
	for {
		if err := s.comm.Await(ctx, runnerRank); err != nil {
			return err
		}
		last, err := s.serve(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case o.Once && (last || err != nil):
			return err
		case err != nil:
			o.Progress(fmt.Sprintf("the runner has gone before its end: %v", err))
		case last:
			o.Progress("the runner has gone")
		}
	}
}

// serve does what one runner asks for, until it goes. last says that it has
// come to its end, and not to that of one of several sessions.
func (s *station) serve(ctx context.Context) (last bool, err error) {
	var m *memory
	defer func() { err = errors.Join(err, m.free(context.WithoutCancel(ctx))) }()
	for ended := false; ; {
		p, err := s.comm.RecvMessage(ctx, runnerRank)
		if err != nil {
			if ended && errors.Is(err, control.ErrDisconnected) {
				return last, nil
			}
			return false, err
		}
		var a ask
		if err = json.Unmarshal(p, &a); err != nil {
			return false, s.drop(fmt.Errorf("message of %s: %w", runnerRank, err))
		}
		var r reply
		switch a.Do {
		case askOpen:
			// The last memory goes first: there may not be room for both.
			old := m
			m = nil
			if err = old.free(ctx); err != nil {
				return false, s.drop(err)
			}
			m, r = s.openMemory(ctx, a)
		case askEnd:
			ended, last = true, a.Last
		default:
			r = s.do(ctx, m, a)
		}
		if p, err = json.Marshal(r); err != nil {
			return false, s.drop(err)
		}
		if err = s.comm.SendMessage(ctx, runnerRank, p); err != nil {
			return false, err
		}
	}
}

// drop ends the session of a runner that can't be served any more, and
// returns why.
func (s *station) drop(cause error) error {
	if err := s.comm.Disconnect(runnerRank); err != nil && !errors.Is(err, comm.ErrNotConnected) {
		return errors.Join(cause, err)
	}
	return cause
}

// openMemory registers and shares memory.
func (s *station) openMemory(ctx context.Context, a ask) (*memory, reply) {
	m, err := s.take(ctx, a.Memory, a.Size)
	if err != nil {
		return nil, reply{Error: err.Error()}
	}
	d, err := s.comm.Share(ctx, runnerRank, m.buffer, wire.Readable|wire.Writable)
	if err != nil {
		return m, reply{Error: err.Error()}
	}
	return m, reply{Descriptor: d.Append(nil), Differs: -1}
}

// do does everything else.
func (s *station) do(ctx context.Context, m *memory, a ask) reply {
	r := reply{Differs: -1}
	var err error
	switch {
	case a.Do == askEcho:
		err = s.echo(ctx, a.Count)
	case m == nil:
		err = errors.New("no memory is open")
	case a.Do == askFill:
		err = write(ctx, m.buffer, a.Seed, a.Size)
	case a.Do == askVerify:
		r.Differs, err = verify(ctx, m.buffer, a.Seed, a.Size)
	default:
		err = fmt.Errorf("%q is not understood", a.Do)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// echo sends tags back.
func (s *station) echo(ctx context.Context, count int) error {
	for range count {
		tag, err := s.comm.RecvTag(ctx, runnerRank)
		if err != nil {
			return err
		}
		if err := s.comm.SendTag(ctx, runnerRank, tag); err != nil {
			return err
		}
	}
	return nil
}
