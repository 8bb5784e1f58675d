package ucx

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/transport"
)

// Library is libucp, opened at the first use. The zero value is ready to use,
// from any goroutine.
type Library struct {
	lazy dl.Lazy[*api]
	// from is opened instead of the system's.
	from dl.Library
}

// Options say which of its transports the library is to use, in the place of
// UCX_TLS. The library's other environment variables, UCX_NET_DEVICES and all
// that begin with UCX_, count where nothing is set here.
type Options struct {
	// Engine has the pinned slots for device memory; it is borrowed.
	Engine *transport.Engine
	// Transports is a list as in UCX_TLS: "posix,cma,self", "rc,sm". Empty is all
	// but TCP. With TCP in it the death of a peer can be that of this process:
	// see the package's documentation.
	Transports string
	// Devices is a list as in UCX_NET_DEVICES: "eth0", "mlx5_0:1".
	Devices string
	// RDMA allows transports only in which an RDMA device (InfiniBand or RoCE)
	// puts and gets by itself. Transports is then a choice among them, all where
	// it is empty.
	RDMA bool
	// OneSided has the library put and get by itself also where it has no device
	// for that. Then the death of a peer can be that of this process: see the
	// package's documentation.
	OneSided bool
}

// direct says whether the library puts and gets by itself.
func (o Options) direct() bool { return o.RDMA || o.OneSided }

// features returns those that a context is made for. Without RMA the library writes
// nothing of what a peer sends to where the peer says.
func (o Options) features() uint64 {
	if o.direct() {
		return featureRMA
	}
	return featureAM
}

// What UCX_TLS is, unless the options say it.
const (
	// rdmaTransports are those whose devices put and get by themselves. UD, the
	// other one, leaves that to the processor of the target.
	rdmaTransports = "rc,dc"
	allButTCP      = "^tcp"
)

// settings are the library's variables that the options set.
func (o Options) settings() []setting {
	// Memory is registered once, by Export. The cache of the library would keep
	// pages registered after they are unmapped: it sees what the C library
	// unmaps, and Go unmaps by itself.
	//
	// Lost peers that are silent are found by the session. What the library
	// sends to find them would look like something that moves.
	set := []setting{{"IB_REG_METHODS", "direct"}, {"KEEPALIVE_INTERVAL", "inf"}}
	tls := o.Transports
	switch {
	case tls != "":
	case o.RDMA:
		tls = rdmaTransports
	default:
		tls = allButTCP
	}
	set = append(set, setting{"TLS", tls})
	if o.Devices != "" {
		set = append(set, setting{"NET_DEVICES", o.Devices})
	}
	return set
}

// setting is a variable of the library, without its UCX_, and its value.
type setting struct{ name, value string }

// Version is that of the library.
//
// Errors: dl.ErrNotInstalled, and dl.ErrNoSymbol for a library that is too
// old.
func (l *Library) Version() (string, error) {
	a, err := l.open()
	if err != nil {
		return "", err
	}
	return dl.String(a.GetVersionString.Call()), nil
}

func (l *Library) open() (*api, error) {
	return l.lazy.Get(func() (*api, error) {
		if len(l.from.Names) > 0 {
			return load(l.from)
		}
		return load(systemLibrary())
	})
}

// Open makes a context: what a process has of the library for one choice of
// transports.
//
// Errors: dl.ErrNotInstalled without the library, ErrNoDevice where no
// transport of the choice has a device.
func (l *Library) Open(o Options) (*Context, error) {
	a, err := l.open()
	if err != nil {
		return nil, err
	}
	config, err := a.configure(o.settings())
	if err != nil {
		return nil, fmt.Errorf("transport ucx: %w", err)
	}
	handle, err := a.initialize(config, o.features())
	a.ConfigRelease.Call(uintptr(config))
	if err != nil {
		return nil, o.explain(err)
	}
	mode, err := a.threadMode(handle)
	if err == nil && mode != threadModeMulti {
		err = errors.New("the library is built without --enable-mt, which several sessions need")
	}
	if err != nil {
		a.Cleanup.Call(uintptr(handle))
		return nil, fmt.Errorf("transport ucx: %w", err)
	}
	return &Context{api: a, handle: handle, opts: o}, nil
}

// explain says which device is lacking.
func (o Options) explain(err error) error {
	var status *StatusError
	if !errors.As(err, &status) || status.Status != statusNoDevice {
		return fmt.Errorf("transport ucx: %w", err)
	}
	if o.RDMA {
		return fmt.Errorf("transport rdma: %w: %s; %w", ErrNoDevice, adapters(infiniband), err)
	}
	return fmt.Errorf("transport ucx: %w for the transports %q and the devices %q; see ucx_info -d: %w",
		ErrNoDevice, o.Transports, o.Devices, err)
}

// infiniband is the directory in which the kernel lists RDMA adapters of all kinds.
const infiniband = "/sys/class/infiniband"

// adapters says which RDMA adapters the kernel knows.
func adapters(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return "the machine has no RDMA adapter (InfiniBand or RoCE): " + dir + " is empty or missing"
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return fmt.Sprintf("the kernel knows %s, and the library can use none: is a port up, and may /dev/infiniband be opened",
		strings.Join(names, ", "))
}
