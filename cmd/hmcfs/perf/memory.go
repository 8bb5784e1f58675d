package perf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/ucx"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Host is the name of plain host memory.
const Host devices.Name = "host"

// Options are the options common to both sides.
type Options struct {
	Rank   wire.Rank
	Secret []byte
	// Plain is as in comm.Options.
	Plain bool
	// Memory lists the memory to measure: "host", and the specs of devices.
	Memory []string
	// Families opens the devices.
	Families *devices.Registry
	// Channels and Chunk are those of the communicator; 0 means its default.
	Channels int
	Chunk    devices.Size
	// Timeout bounds a wait for the other side without progress; 0 means the communicator's
	// default.
	Timeout time.Duration
	// UCX holds the options of libucp for the transports rdma and ucx.
	UCX ucx.Options
	// Progress is called with one line for each step. Required.
	Progress func(line string)
}

// station is one side: a communicator and the memory to measure.
type station struct {
	opts   *Options
	engine *transport.Engine
	// comm and domains are those of the sessions, from open to hangUp.
	comm    *comm.Communicator
	domains *domain.Domains
	// names are the kinds of memory, in the order of the options.
	names []devices.Name
	devs  map[devices.Name]devices.Device
}

// newStation opens the devices.
func newStation(ctx context.Context, o *Options) (_ *station, err error) {
	s := &station{opts: o, devs: map[devices.Name]devices.Device{}}
	defer func() { //nolint:contextcheck // cleanup must not depend on the context
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for _, spec := range o.Memory {
		if devices.Name(spec) == Host {
			s.names = append(s.names, Host)
			continue
		}
		dev, oerr := o.Families.Open(ctx, spec)
		if oerr != nil {
			return nil, oerr
		}
		name := dev.Info().Name
		if s.devs[name] != nil {
			return nil, errors.Join(fmt.Errorf("memory %s is named twice", name), dev.Close())
		}
		s.names, s.devs[name] = append(s.names, name), dev
	}
	s.engine, err = transport.New(transport.Options{})
	return s, err
}

// open makes the communicator with the given transports; none means the communicator's
// default.
func (s *station) open(transports []comm.Transport) (err error) {
	s.comm, err = comm.New(comm.Options{
		Rank: s.opts.Rank, Secret: s.opts.Secret, Plain: s.opts.Plain, Engine: s.engine, Transports: transports, Devices: slices.Collect(maps.Values(s.devs)), UCX: s.opts.UCX,
		Channels: s.opts.Channels, Chunk: uint32(s.opts.Chunk), Timeout: s.opts.Timeout,
	})
	if err != nil {
		return err
	}
	s.domains, err = domain.New(s.comm, domain.Options{Timeout: s.opts.Timeout})
	return err
}

// hangUp closes the communicator.
func (s *station) hangUp() error {
	var errs []error
	if s.domains != nil {
		errs = append(errs, s.domains.Close())
	}
	if s.comm != nil {
		errs = append(errs, s.comm.Close())
	}
	s.domains, s.comm = nil, nil
	return errors.Join(errs...)
}

// close closes the communicator, then the resources that it used.
func (s *station) close() error {
	errs := []error{s.hangUp()}
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	}
	for _, dev := range s.devs {
		errs = append(errs, dev.Close())
	}
	return errors.Join(errs...)
}

// memory is registered memory of one kind.
type memory struct {
	buffer *region.Buffer
	owner  *devices.Memory
}

// take allocates and registers n bytes of a kind of memory.
func (s *station) take(ctx context.Context, name devices.Name, n devices.Size) (*memory, error) {
	if name == Host {
		b, err := s.comm.Table().Alloc(n)
		if err != nil {
			return nil, err
		}
		return &memory{buffer: b}, nil
	}
	dev := s.devs[name]
	if dev == nil {
		return nil, fmt.Errorf("memory %q is not served here; use one of %s: %w", name, s.list(), devices.ErrNoDevice)
	}
	m, err := allocate(ctx, dev, n)
	if err != nil {
		return nil, err
	}
	b, err := s.comm.Table().RegisterDevice(m.All())
	if err != nil {
		return nil, errors.Join(err, m.Release())
	}
	return &memory{buffer: b, owner: m}, nil
}

// allocate allocates memory that another process can open, if the device supports it.
func allocate(ctx context.Context, dev devices.Device, n devices.Size) (*devices.Memory, error) {
	for _, kind := range devices.ExportKinds(dev) {
		m, err := devices.AllocShared(ctx, dev, n, kind)
		if !errors.Is(err, devices.ErrUnsupported) {
			return m, err
		}
	}
	return dev.Alloc(ctx, n)
}

// free frees the memory; it accepts nil.
func (m *memory) free(ctx context.Context) error {
	if m == nil {
		return nil
	}
	err := m.buffer.Close(ctx)
	if m.owner != nil {
		err = errors.Join(err, m.owner.Release())
	}
	return err
}

// list returns the names of the kinds of memory.
func (s *station) list() string {
	var names []string
	for _, n := range s.names {
		names = append(names, string(n))
	}
	return strings.Join(names, ", ")
}
