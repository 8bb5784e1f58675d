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

// Requests of a runner.
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

// ask is a request of the runner.
type ask struct {
	Do     string       `json:"do"`
	Memory devices.Name `json:"memory,omitempty"`
	Size   devices.Size `json:"size,omitempty"`
	Seed   uint64       `json:"seed,omitempty"`
	Count  int          `json:"count,omitempty"`
	// Last reports that no other session of this runner follows.
	Last bool `json:"last,omitempty"`
}

// reply is the server's answer to it.
type reply struct {
	Error string `json:"error,omitempty"`
	// Descriptor describes the memory that was opened.
	Descriptor []byte `json:"descriptor,omitempty"`
	// Differs is the offset of the first wrong byte, or -1.
	Differs int64 `json:"differs"`
}

// ServeOptions configures a server.
type ServeOptions struct {
	Options

	// Listen holds the addresses, at least one.
	Listen []control.Address
	// Transports are the transports that a runner may use; none means all. A runner that
	// uses RDMA or UCX is trusted with the memory of the process.
	Transports []comm.Transport
	// Once ends the server after its first runner. A runner that disconnects before its end
	// is then an error.
	Once bool
	// Listening is called with each address, including the port that the kernel chose.
	// Required.
	Listening func(control.Address) error
}

// Validate reports all invalid options, joined.
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
	defer func() { err = errors.Join(err, s.close()) }() //nolint:contextcheck // cleanup must not depend on the context
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
