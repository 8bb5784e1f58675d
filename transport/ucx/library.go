package ucx

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/transport"
)

// Library is libucp, opened on first use. The zero value is ready for use, from
// any goroutine.
type Library struct {
	lazy dl.Lazy[*api]
	// from, if set, is opened instead of the system's library.
	from dl.Library
}

// Options selects the transports that the library uses, in place of UCX_TLS. The
// library's other environment variables, UCX_NET_DEVICES and all that start with
// UCX_, apply where nothing is set here.
type Options struct {
	// Engine provides the pinned slots for device memory; it is borrowed.
	Engine *transport.Engine
	// Transports is a list as in UCX_TLS: "posix,cma,self", "rc,sm". Empty means
	// all but TCP. With TCP in it, the death of a peer can end this process: see
	// the package's documentation.
	Transports string
	// Devices is a list as in UCX_NET_DEVICES: "eth0", "mlx5_0:1".
	Devices string
	// RDMA allows only transports in which an RDMA device (InfiniBand or RoCE)
	// puts and gets itself. Transports then selects among them; empty means all.
	RDMA bool
	// OneSided makes the library put and get itself even if it has no device for
	// that. Then the death of a peer can end this process: see the package's
	// documentation.
	OneSided bool
}

// direct reports whether the library puts and gets itself.
func (o Options) direct() bool { return o.RDMA || o.OneSided }

// features returns the features for which a context is made. Without RMA the
// library writes no data of a peer to an address that the peer has chosen.
func (o Options) features() uint64 {
	if o.direct() {
		return featureRMA
	}
	return featureAM
}

// The values of UCX_TLS, unless the options set it.
const (
	// rdmaTransports are those whose devices put and get themselves. UD, the
	// other one, leaves that to the processor of the target.
	rdmaTransports = "rc,dc"
	allButTCP      = "^tcp"
)

// settings returns the library's variables that the options set.
func (o Options) settings() []setting {
	// Memory is registered once, by Export. The cache of the library would keep
	// pages registered after they are unmapped: it notices what the C library
	// unmaps, but Go unmaps memory itself.
	//
	// The session detects lost peers that are silent. The library's own keepalive
	// messages would look like progress.
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

// Version returns the version of the library.
//
// Errors: dl.ErrNotInstalled, and dl.ErrNoSymbol for a library that is too old.
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

// Open makes a context: the state of the library for one selection of transports.
//
// Errors: dl.ErrNotInstalled without the library, ErrNoDevice if no selected
// transport has a device.
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
		err = errors.New("the library was built without --enable-mt, which is required for several sessions")
	}
	if err != nil {
		a.Cleanup.Call(uintptr(handle))
		return nil, fmt.Errorf("transport ucx: %w", err)
	}
	return &Context{api: a, handle: handle, opts: o}, nil
}

// explain adds the missing device to an error.
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

// adapters describes the RDMA adapters that the kernel knows.
func adapters(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return "the machine has no RDMA adapter (InfiniBand or RoCE): " + dir + " is empty or missing"
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return fmt.Sprintf("the kernel has %s, but the library can use none of them; check that a port is up and that /dev/infiniband may be opened",
		strings.Join(names, ", "))
}
