package cudalike

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// hipAPI contains the used functions of libamdhip64. Signatures and constants are those of
// hip/hip_runtime_api.h and hip/driver_types.h of HIP 5.2; a test compares them if the
// headers are installed. The copy functions are those with the direction in their name:
// they have no kind parameter that could be wrong.
//
// hipInit is not called: in a process without a visible device it returns "invalid device",
// while hipGetDeviceCount, which initializes the runtime as well, returns "no device".
type hipAPI struct {
	prefixAPI
	DeviceGetName      dl.Func `dl:"hipDeviceGetName"`
	DeviceGetUUID      dl.Func `dl:"hipDeviceGetUuid,optional"`
	MemcpyHtoDAsync    dl.Func `dl:"hipMemcpyHtoDAsync"`
	MemcpyDtoHAsync    dl.Func `dl:"hipMemcpyDtoHAsync"`
	MemcpyDtoDAsync    dl.Func `dl:"hipMemcpyDtoDAsync"`
	MemsetD8Async      dl.Func `dl:"hipMemsetD8Async"`
	MemGetAddressRange dl.Func `dl:"hipMemGetAddressRange,optional"`
}

// Constants of HIP's headers.
const (
	hipErrorOutOfMemory              = 2
	hipErrorDeinitialized            = 4
	hipErrorECCNotCorrectable        = 214
	hipErrorIllegalAddress           = 700
	hipErrorLaunchTimeOut            = 702
	hipErrorPeerAccessAlreadyEnabled = 704
	hipErrorContextIsDestroyed       = 709
	hipErrorAssert                   = 710
	hipErrorLaunchFailure            = 719
	// hipIpcMemLazyEnablePeerAccess is 0 up to HIP 5 and 1 since then. A library accepts
	// only its own value.
	hipIPCLazyOld, hipIPCLazy = 0, 1
)

// NewHIP returns the driver of AMD's GPUs and Hygon's DCUs.
func NewHIP(opts Options) *Driver {
	return newDriver(family{
		name:   HIP,
		vendor: "AMD or Hygon",
		library: dl.Library{
			Names: []string{
				"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
				"libgalaxyhip.so.5", "/opt/rocm/lib/libamdhip64.so", "/opt/dtk/hip/lib/libgalaxyhip.so.5",
			},
			Hint: "install ROCm, or DTK for a Hygon DCU (apt install libamdhip64-5)",
		},
		check: "is the amdgpu driver loaded, and may this user open /dev/kfd?",
		adapt: adaptHIP,
	}, opts)
}

func adaptHIP(lib *dl.Handle) (*table, error) {
	a := &hipAPI{prefixAPI: prefixAPI{prefix: "hip", lazyPeer: []uint32{hipIPCLazy, hipIPCLazyOld}}}
	if err := errors.Join(lib.ResolvePrefix(a.prefix, &a.prefixAPI), lib.Resolve(a)); err != nil {
		return nil, fmt.Errorf("HIP 4.0 is needed: %w", err)
	}
	t := &table{codes: codes{
		outOfMemory: []int32{hipErrorOutOfMemory},
		fatal: []int32{
			hipErrorDeinitialized, hipErrorECCNotCorrectable, hipErrorIllegalAddress, hipErrorLaunchTimeOut,
			hipErrorContextIsDestroyed, hipErrorAssert, hipErrorLaunchFailure,
		},
		peerEnabled: hipErrorPeerAccessAlreadyEnabled,
	}}
	a.adapt(t)
	a.facts(t)
	a.copies(t)
	if t.ipc != nil && a.MemGetAddressRange.Present() {
		t.ipc.extent = func(p address) (uint64, error) {
			_, n, r := outBoth(a.MemGetAddressRange, uintptr(p))
			return uint64(n), a.check("MemGetAddressRange", r)
		}
	}
	return t, nil
}

// facts fills in the functions for the names of a card.
func (a *hipAPI) facts(t *table) {
	t.name = func(ordinal int) (string, error) {
		buf := make([]byte, 256)
		r := bytesFirst(a.DeviceGetName, buf, uintptr(len(buf)), uintptr(ordinal))
		return dl.Text(buf), a.check("DeviceGetName", r)
	}
	if a.DeviceGetUUID.Present() {
		t.uuid = func(ordinal int) (string, error) {
			buf := make([]byte, 16)
			r := bytesFirst(a.DeviceGetUUID, buf, uintptr(ordinal))
			return hipUUID(buf), a.check("DeviceGetUuid", r)
		}
	}
}

// hipUUID formats a card's UUID as rocm-smi does: the sixteen bytes are hexadecimal digits.
// Other runtimes that resemble HIP return binary bytes.
func hipUUID(p []byte) string {
	text := dl.Text(p)
	switch {
	case text == "":
		return ""
	case strings.Trim(text, "0123456789abcdefABCDEF") == "":
		return "GPU-" + strings.ToLower(text)
	}
	return "GPU-" + hex.EncodeToString(p)
}

// copies fills in the copy functions.
func (a *hipAPI) copies(t *table) {
	t.in = func(dst target, src []byte, s stream) error {
		r := bytesSecond(a.MemcpyHtoDAsync, uintptr(dst.at), src, uintptr(len(src)), uintptr(s))
		return a.check("MemcpyHtoDAsync", r)
	}
	t.out = func(dst []byte, src address, s stream) error {
		r := bytesFirst(a.MemcpyDtoHAsync, dst, uintptr(src), uintptr(len(dst)), uintptr(s))
		return a.check("MemcpyDtoHAsync", r)
	}
	t.copy = func(dst target, src address, n uint64, s stream) error {
		r := a.MemcpyDtoDAsync.Call(uintptr(dst.at), uintptr(src), uintptr(n), uintptr(s))
		return a.check("MemcpyDtoDAsync", r)
	}
	t.fill = func(dst target, value byte, n uint64, s stream) error {
		r := a.MemsetD8Async.Call(uintptr(dst.at), uintptr(value), uintptr(n), uintptr(s))
		return a.check("MemsetD8Async", r)
	}
}
