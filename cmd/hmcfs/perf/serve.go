package perf

import (
	"context"
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
	askOpen    = "open"
	askFill    = "fill"
	askVerify  = "verify"
	askEcho    = "echo"
	askJoin    = "join"
	askSend    = "send"
	askReceive = "receive"
	askPong    = "pong"
	askBounce  = "bounce"
	askStore   = "store"
	askEnd     = "end"
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

// reply is the server's answer to it.
type reply struct {
	Error string `json:"error,omitempty"`
	// Descriptor is the memory that was opened.
	Descriptor []byte `json:"descriptor,omitempty"`
	// Differs is the first byte that is not as it should be, -1 is none.
	Differs int64 `json:"differs"`
}

// ServeOptions describe a server.
type ServeOptions struct {
	Options

	// Listen has the addresses, at least one.
	Listen []control.Address
	// Transports are those that a runner may take; none is all of them. A
	// runner that takes RDMA or UCX is trusted with the memory of the process.
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
		faults = append(faults, errors.New("no address to listen on: give one"))
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
	defer func() { err = errors.Join(err, s.close()) }() //nolint:contextcheck // the end is not the context's
	if len(o.Transports) == 0 {
		o.Transports = transports()
	}
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
			o.Progress(fmt.Sprintf("the client disconnected before its end: %v", err))
		case last:
			o.Progress("the client has disconnected")
		}
	}
}
