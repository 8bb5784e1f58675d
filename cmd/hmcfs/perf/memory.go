package perf

import (
	"context"
	"errors"
	"fmt"
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

// Options are those of both sides.
type Options struct {
	Rank   wire.Rank
	Secret []byte
	// Plain is as in comm.Options.
	Plain bool
	// Memory lists what is measured: "host", and the specs of devices.
	Memory []string
	// Families opens the devices.
	Families *devices.Registry
	// Channels and Chunk are the communicator's; 0 is its default.
	Channels int
	Chunk    devices.Size
	// Timeout bounds the time that the other side lets us wait without anything
	// moving; 0 is the communicator's default.
	Timeout time.Duration
	// UCX has libucp's options for the transports rdma and ucx.
	UCX ucx.Options
	// Progress is told, in one line, what is under way. Required.
	Progress func(line string)
}

// station is one side: a communicator and the memory that it measures.
type station struct {
	opts   *Options
	engine *transport.Engine
	// comm and domains are those of the sessions, from open to hangUp.
	comm    *comm.Communicator
	domains *domain.Domains
	// names are the kinds of memory in the order in which they were given.
	names []devices.Name
	devs  map[devices.Name]devices.Device
}

// newStation opens the devices.
func newStation(ctx context.Context, o *Options) (_ *station, err error) {
	s := &station{opts: o, devs: map[devices.Name]devices.Device{}}
	defer func() { //nolint:contextcheck // the end is not the context's
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

// open makes the communicator, with the transports that it may take: none is
// those that the communicator takes by itself.
func (s *station) open(transports []comm.Transport) (err error) {
	devs := make([]devices.Device, 0, len(s.devs))
	for _, dev := range s.devs {
		devs = append(devs, dev)
	}
	s.comm, err = comm.New(comm.Options{
		Rank: s.opts.Rank, Secret: s.opts.Secret, Plain: s.opts.Plain, Engine: s.engine, Transports: transports, Devices: devs, UCX: s.opts.UCX,
		Channels: s.opts.Channels, Chunk: uint32(s.opts.Chunk), Timeout: s.opts.Timeout,
	})
	if err != nil {
		return err
	}
	s.domains, err = domain.New(s.comm, domain.Options{Timeout: s.opts.Timeout})
	return err
}

// hangUp ends the communicator.
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

// close ends the communicator, then what it used.
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

// memory is n bytes of one kind, registered.
type memory struct {
	buffer *region.Buffer
	owner  *devices.Memory
}

// take registers n bytes of a kind of memory.
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

// allocate takes memory that another process can open, where the device has
// such.
func allocate(ctx context.Context, dev devices.Device, n devices.Size) (*devices.Memory, error) {
	for _, kind := range devices.ExportKinds(dev) {
		m, err := devices.AllocShared(ctx, dev, n, kind)
		if !errors.Is(err, devices.ErrUnsupported) {
			return m, err
		}
	}
	return dev.Alloc(ctx, n)
}

// free gives the memory back; nil has none.
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

// list names the kinds of memory.
func (s *station) list() string {
	var names []string
	for _, n := range s.names {
		names = append(names, string(n))
	}
	return strings.Join(names, ", ")
}
