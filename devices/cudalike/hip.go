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
	copyAPI
	DeviceGetName      dl.Func `dl:"hipDeviceGetName"`
	DeviceGetUUID      dl.Func `dl:"hipDeviceGetUuid,optional"`
	MemGetAddressRange dl.Func `dl:"hipMemGetAddressRange,optional"`
}

// Constants of HIP's headers, besides the common ones.
const (
	hipErrorDeinitialized = 4
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
	a := &hipAPI{prefixAPI: prefixAPI{lazyPeer: []uint32{hipIPCLazy, hipIPCLazyOld}}}
	err := errors.Join(lib.ResolvePrefix("hip", &a.prefixAPI), lib.ResolvePrefix("hip", &a.copyAPI), lib.Resolve(a))
	if err != nil {
		return nil, fmt.Errorf("HIP 4.0 is needed: %w", err)
	}
	t := a.adapt("hip", hipErrorDeinitialized)
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
