package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// Code is a CUresult.
type Code int32

// The codes that this package distinguishes.
const (
	codeOutOfMemory       Code = 2
	codeDeinitialized     Code = 4
	codeStubLibrary       Code = 34
	codeDeviceUnavailable Code = 46
	codeNoDevice          Code = 100
	codeECCUncorrectable  Code = 214
	codePeerUnsupported   Code = 217
	codeNVLink            Code = 220
	codeContained         Code = 226
	codeOperatingSystem   Code = 304
	codeNotReady          Code = 600
	codeIllegalAddress    Code = 700
	codeLaunchTimeout     Code = 702
	codePeerEnabled       Code = 704
	codeContextDestroyed  Code = 709
	codeAssert            Code = 710
	codeTooManyPeers      Code = 711
	codeAlreadyRegistered Code = 712
	codeHardwareStack     Code = 714
	codeIllegalInstr      Code = 715
	codeMisaligned        Code = 716
	codeAddressSpace      Code = 717
	codeInvalidPC         Code = 718
	codeLaunchFailed      Code = 719
	codeTensorLeak        Code = 721
	codeNotPermitted      Code = 800
	codeSystemNotReady    Code = 802
	codeDriverMismatch    Code = 803
	codeCompat            Code = 804
	codeMPSTerminated     Code = 810
	codeExternalDevice    Code = 911
	codeUnknown           Code = 999
)

// Sticky reports whether the code makes the context unusable for the process: every later
// call returns it too, and the memory of the device is lost.
func (c Code) Sticky() bool {
	switch c {
	case codeDeinitialized, codeECCUncorrectable, codeNVLink, codeContained, codeIllegalAddress,
		codeLaunchTimeout, codeContextDestroyed, codeAssert, codeHardwareStack, codeIllegalInstr,
		codeMisaligned, codeAddressSpace, codeInvalidPC, codeLaunchFailed, codeTensorLeak,
		codeMPSTerminated, codeExternalDevice:
		return true
	default:
		return false
	}
}

// hint returns the remedy for people, if there is one.
func (c Code) hint() string {
	switch c {
	case codeStubLibrary:
		return "libcuda.so.1 is the toolkit's stub: install the driver, or remove the stubs from LD_LIBRARY_PATH"
	case codeDeviceUnavailable:
		return "another program uses the card exclusively, or its compute mode forbids contexts (nvidia-smi -q -d COMPUTE)"
	case codeNoDevice:
		return "no card is visible: check that nvidia-smi lists one, and the value of CUDA_VISIBLE_DEVICES"
	case codeOperatingSystem, codeNotPermitted, codeUnknown:
		return "check that /dev/nvidia* and /dev/nvidia-uvm exist and may be opened (nvidia-modprobe -u creates the latter)"
	case codeSystemNotReady:
		return "a machine with NVSwitch needs a running nvidia-fabricmanager"
	case codeDriverMismatch, codeCompat:
		return "the kernel module and libcuda.so.1 are of different driver versions: " +
			"restart after an update of the driver; in a container, use the host's library"
	case codeMPSTerminated:
		return "the MPS server has ended this client"
	default:
		if c.Sticky() {
			return "the card's memory is lost to this process: unmount and mount again"
		}
		return ""
	}
}

// check turns the result code of a call into an error.
func (a *api) check(call string, code Code) error {
	if code == 0 {
		return nil
	}
	return &dl.Error{
		Call: call, Code: int32(code), Name: cmp.Or(a.errorText(a.GetErrorName, code), "unknown CUDA error"),
		Text: a.errorText(a.GetErrorString, code), Hint: code.hint(),
	}
}

// errorText returns one of the driver's texts for a code.
func (a *api) errorText(ask dl.Func, code Code) string {
	if !ask.Present() {
		return ""
	}
	return callForText(ask, code)
}

// codeOf returns the code in an error, 0 if there is none.
func codeOf(err error) Code {
	if e, ok := errors.AsType[*dl.Error](err); ok {
		return Code(e.Code)
	}
	return 0
}

// forbidden adds to an initialization error that the driver's device file is not
// accessible, which the driver reports as if there were no device.
func forbidden(err error, control string) error {
	f, oerr := os.OpenFile(control, os.O_RDWR, 0)
	if oerr == nil {
		_ = f.Close()
		return err
	}
	if errors.Is(oerr, os.ErrPermission) {
		return fmt.Errorf("%w; this user may not open %s", err, control)
	}
	return err
}
