package ucx

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// configure reads the library's configuration, which includes the environment's
// UCX_ variables, and overrides it with the given settings.
func (a *api) configure(set []setting) (configHandle, error) {
	var c configHandle
	if err := a.check("ucp_config_read", statusOf(a.ConfigRead.Call(0, 0, uintptr(unsafe.Pointer(&c))))); err != nil {
		return 0, err
	}
	for _, s := range set {
		name, err := unix.BytePtrFromString(s.name)
		if err != nil {
			a.ConfigRelease.Call(uintptr(c))
			return 0, fmt.Errorf("UCX_%s: %w", s.name, err)
		}
		value, err := unix.BytePtrFromString(s.value)
		if err == nil {
			status := statusOf(a.ConfigModify.Call(uintptr(c), uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(value))))
			err = a.check("ucp_config_modify", status)
		}
		if err != nil {
			a.ConfigRelease.Call(uintptr(c))
			return 0, fmt.Errorf("set UCX_%s to %q: %w", s.name, s.value, err)
		}
	}
	return c, nil
}

// initialize makes a context.
func (a *api) initialize(c configHandle, features uint64) (contextHandle, error) {
	p := contextParams{
		fieldMask: paramFeatures | paramWorkersShared | paramEstimatedEps,
		features:  features | featureWakeup, mtWorkersShared: 1, estimatedEps: 1,
	}
	var h contextHandle
	status := statusOf(a.InitVersion.Call(apiMajor, apiMinor, uintptr(unsafe.Pointer(&p)), uintptr(c), uintptr(unsafe.Pointer(&h))))
	return h, a.check("ucp_init", status)
}

// threadMode returns the number of threads that may use a context at a time, as a
// thread mode.
func (a *api) threadMode(h contextHandle) (int32, error) {
	attr := contextAttr{fieldMask: contextThreadMode}
	err := a.check("ucp_context_query", statusOf(a.ContextQuery.Call(uintptr(h), uintptr(unsafe.Pointer(&attr)))))
	return attr.threadMode, err
}

// createWorker makes a worker for use by one thread at a time.
func (a *api) createWorker(h contextHandle) (workerHandle, error) {
	p := workerParams{
		fieldMask: workerThreadMode | workerFlags, threadMode: threadModeSerialized,
		// Leftovers of a lost peer are ours to clean up, and need no warning.
		flags: workerIgnoreLeak,
	}
	var w workerHandle
	status := statusOf(a.WorkerCreate.Call(uintptr(h), uintptr(unsafe.Pointer(&p)), uintptr(unsafe.Pointer(&w))))
	return w, a.check("ucp_worker_create", status)
}

// address returns the address by which a peer connects to a worker.
func (a *api) address(w workerHandle) ([]byte, error) {
	var at uintptr
	var n uint64
	status := statusOf(a.WorkerGetAddress.Call(uintptr(w), uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&n))))
	if err := a.check("ucp_worker_get_address", status); err != nil {
		return nil, err
	}
	defer a.WorkerReleaseAddress.Call(uintptr(w), at)
	return append([]byte(nil), dl.Bytes(at, int(n))...), nil
}

// eventFD returns the descriptor that signals work of the worker. It belongs to
// the worker.
func (a *api) eventFD(w workerHandle) (int, error) {
	var fd int32
	err := a.check("ucp_worker_get_efd", statusOf(a.WorkerGetEfd.Call(uintptr(w), uintptr(unsafe.Pointer(&fd)))))
	return int(fd), err
}

// connect makes an endpoint to the worker with the address. In the mode
// errorModePeer its failure is reported with the user data.
func (a *api) connect(w workerHandle, address []byte, mode int32, user uintptr) (endpointHandle, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&address[0])
	p := endpointParams{
		fieldMask: epRemoteAddress | epErrorMode | epErrorHandler | epUserData,
		address:   uintptr(unsafe.Pointer(&address[0])),
		errMode:   mode, errHandler: callbacks().onFailure, userData: user,
	}
	var ep endpointHandle
	status := statusOf(a.EpCreate.Call(uintptr(w), uintptr(unsafe.Pointer(&p)), uintptr(unsafe.Pointer(&ep))))
	return ep, a.check("ucp_ep_create", status)
}

// handleMessages registers the callback for all messages of a worker, with the
// user data.
func (a *api) handleMessages(w workerHandle, user uintptr) error {
	p := messageHandler{
		fieldMask: amHandlerID | amHandlerFlags | amHandlerCall | amHandlerArg,
		flags:     amWholeMessage, call: callbacks().onMessage, arg: user,
	}
	status := statusOf(a.SetMessageHandler.Call(uintptr(w), uintptr(unsafe.Pointer(&p))))
	return a.check("ucp_worker_set_am_recv_handler", status)
}

// mapMemory registers bytes, which must stay where they are, for access by peers.
func (a *api) mapMemory(h contextHandle, p []byte, prot uint32) (memoryHandle, error) {
	params := memMapParams{
		fieldMask: memMapAddress | memMapLength | memMapProt | memMapMemoryType,
		address:   uintptr(unsafe.Pointer(unsafe.SliceData(p))), length: uint64(len(p)),
		prot: prot, memoryType: memoryHost,
	}
	var m memoryHandle
	err := a.check("ucp_mem_map", statusOf(a.MemMap.Call(uintptr(h), uintptr(unsafe.Pointer(&params)), uintptr(unsafe.Pointer(&m)))))
	runtime.KeepAlive(p)
	return m, err
}

// packKey returns a copy of the packed key of mapped memory, for a peer.
func (a *api) packKey(h contextHandle, m memoryHandle) ([]byte, error) {
	var at uintptr
	var n uint64
	status := statusOf(a.RkeyPack.Call(uintptr(h), uintptr(m), uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&n))))
	if err := a.check("ucp_rkey_pack", status); err != nil {
		return nil, err
	}
	defer a.RkeyBufferRelease.Call(at)
	return append([]byte(nil), dl.Bytes(at, int(n))...), nil
}

// unpackKey makes a key from the bytes that the peer has packed. The library
// reads lengths from the bytes, without knowing the total: padded has enough of
// them for any lengths.
func (a *api) unpackKey(ep endpointHandle, padded []byte) (remoteKey, error) {
	var k remoteKey
	status := statusOf(a.EpRkeyUnpack.Call(uintptr(ep), uintptr(unsafe.Pointer(&padded[0])), uintptr(unsafe.Pointer(&k))))
	return k, a.check("ucp_ep_rkey_unpack", status)
}

// globalOption returns a library-wide option, or "" if the library does not have
// it.
func (a *api) globalOption(name string) string {
	text := make([]byte, 64)
	n, err := unix.BytePtrFromString(name)
	if err != nil || !a.GlobalOptsGet.Present() {
		return ""
	}
	status := statusOf(a.GlobalOptsGet.Call(uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(&text[0])), uintptr(len(text))))
	if status.failed() {
		return ""
	}
	return unix.ByteSliceToString(text)
}

// setGlobalOption sets a library-wide option.
func (a *api) setGlobalOption(name, value string) {
	n, err := unix.BytePtrFromString(name)
	v, verr := unix.BytePtrFromString(value)
	if err != nil || verr != nil || !a.GlobalOptsSet.Present() {
		return
	}
	a.GlobalOptsSet.Call(uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(v)))
}
