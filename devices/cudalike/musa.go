package cudalike

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// musaAPI contains the used functions of libmusart. The names and parameters are those used
// by public users of the runtime (torch_musa, TileLang's loader of libmusart), which call
// it like CUDA's. The error codes are those of the enum musaError in public copies of its
// header, and the copy kinds are CUDA's, according to those users. The vendor's header was
// not available.
//
// Memory is allocated by musaMalloc on the card: registered host memory has a device
// address too, but is not what a user of the card expects.
type musaAPI struct {
	prefixAPI
	GetDeviceProperties dl.Func `dl:"musaGetDeviceProperties,optional"`
	GetPropertiesV2     dl.Func `dl:"musaGetDeviceProperties_v2,optional"`
	MemcpyAsync         dl.Func `dl:"musaMemcpyAsync"`
	MemsetAsync         dl.Func `dl:"musaMemsetAsync"`
}

// Constants of MUSA's headers, besides the common ones.
const (
	musaErrorMtlinkUncorrectable = 220
	musaErrorHardwareStackError  = 714
	musaIPCLazyEnablePeerAccess  = 1
	musaMemcpyHostToDevice       = 1
	musaMemcpyDeviceToHost       = 2
	musaMemcpyDeviceToDevice     = 3
	// musaProperties is larger than any musaDeviceProp, in bytes. Only its first field is
	// read: the name, of 256 characters.
	musaProperties = 8192
	musaNameSize   = 256
)

// NewMUSA returns the driver of Moore Threads' GPUs.
func NewMUSA(opts Options) *Driver {
	return newDriver(family{
		name:   MUSA,
		vendor: "Moore Threads",
		library: dl.Library{
			Names: []string{"libmusart.so.5", "libmusart.so.4", "libmusart.so", "/usr/local/musa/lib/libmusart.so"},
			Hint:  "install Moore Threads' driver and MUSA toolkit",
		},
		check: "is the mtgpu driver loaded?",
		adapt: adaptMUSA,
	}, opts)
}

func adaptMUSA(lib *dl.Handle) (*table, error) {
	a := &musaAPI{prefixAPI: prefixAPI{lazyPeer: []uint32{musaIPCLazyEnablePeerAccess}}}
	if err := errors.Join(lib.ResolvePrefix("musa", &a.prefixAPI), lib.Resolve(a)); err != nil {
		return nil, fmt.Errorf("a MUSA runtime is needed: %w", err)
	}
	t := a.adapt("musa", musaErrorMtlinkUncorrectable, musaErrorHardwareStackError, 715, 716, 717, 718)
	a.copies(t)
	t.name = a.deviceName
	return t, nil
}

// deviceName reads the name from a card's properties.
func (a *musaAPI) deviceName(ordinal int) (string, error) {
	f := a.GetDeviceProperties
	if !f.Present() { // the name in newer headers
		f = a.GetPropertiesV2
	}
	if !f.Present() {
		return "Moore Threads GPU", nil
	}
	buf := make([]byte, musaProperties)
	r := bytesFirst(f, buf, uintptr(ordinal))
	return dl.Text(buf[:musaNameSize]), a.check("GetDeviceProperties", r)
}

// copies fills in the copy functions.
func (a *musaAPI) copies(t *table) {
	t.in = func(dst target, src []byte, s stream) error {
		r := bytesSecond(a.MemcpyAsync, uintptr(dst.at), src, uintptr(len(src)), musaMemcpyHostToDevice, uintptr(s))
		return a.check("MemcpyAsync H2D", r)
	}
	t.out = func(dst []byte, src address, s stream) error {
		r := bytesFirst(a.MemcpyAsync, dst, uintptr(src), uintptr(len(dst)), musaMemcpyDeviceToHost, uintptr(s))
		return a.check("MemcpyAsync D2H", r)
	}
	t.copy = func(dst target, src address, n uint64, s stream) error {
		r := a.MemcpyAsync.Call(uintptr(dst.at), uintptr(src), uintptr(n), musaMemcpyDeviceToDevice, uintptr(s))
		return a.check("MemcpyAsync D2D", r)
	}
	t.fill = func(dst target, value byte, n uint64, s stream) error {
		r := a.MemsetAsync.Call(uintptr(dst.at), uintptr(value), uintptr(n), uintptr(s))
		return a.check("MemsetAsync", r)
	}
}
