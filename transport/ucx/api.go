package ucx

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// The handles of UCP objects. All are pointers that belong to the library.
type (
	configHandle   uintptr
	contextHandle  uintptr
	workerHandle   uintptr
	endpointHandle uintptr
	memoryHandle   uintptr
	remoteKey      uintptr
	// request is an operation that the library has started: 0 is one that was
	// complete at once, and a status one that failed at once.
	request uintptr
)

// api is the function table of libucp. Every function in it is part of UCP
// 1.11 and later.
type api struct {
	InitVersion          dl.Func `dl:"ucp_init_version"`
	GetVersionString     dl.Func `dl:"ucp_get_version_string"`
	Cleanup              dl.Func `dl:"ucp_cleanup"`
	ContextQuery         dl.Func `dl:"ucp_context_query"`
	ConfigRead           dl.Func `dl:"ucp_config_read"`
	ConfigModify         dl.Func `dl:"ucp_config_modify"`
	ConfigRelease        dl.Func `dl:"ucp_config_release"`
	WorkerCreate         dl.Func `dl:"ucp_worker_create"`
	WorkerDestroy        dl.Func `dl:"ucp_worker_destroy"`
	WorkerGetAddress     dl.Func `dl:"ucp_worker_get_address"`
	WorkerReleaseAddress dl.Func `dl:"ucp_worker_release_address"`
	WorkerGetEfd         dl.Func `dl:"ucp_worker_get_efd"`
	WorkerArm            dl.Func `dl:"ucp_worker_arm"`
	WorkerSignal         dl.Func `dl:"ucp_worker_signal"`
	WorkerProgress       dl.Func `dl:"ucp_worker_progress"`
	EpCreate             dl.Func `dl:"ucp_ep_create"`
	EpClose              dl.Func `dl:"ucp_ep_close_nbx"`
	EpFlush              dl.Func `dl:"ucp_ep_flush_nbx"`
	EpRkeyUnpack         dl.Func `dl:"ucp_ep_rkey_unpack"`
	RkeyDestroy          dl.Func `dl:"ucp_rkey_destroy"`
	RkeyPack             dl.Func `dl:"ucp_rkey_pack"`
	RkeyBufferRelease    dl.Func `dl:"ucp_rkey_buffer_release"`
	MemMap               dl.Func `dl:"ucp_mem_map"`
	MemUnmap             dl.Func `dl:"ucp_mem_unmap"`
	Put                  dl.Func `dl:"ucp_put_nbx"`
	Get                  dl.Func `dl:"ucp_get_nbx"`
	SetMessageHandler    dl.Func `dl:"ucp_worker_set_am_recv_handler"`
	SendMessage          dl.Func `dl:"ucp_am_send_nbx"`
	ReceiveData          dl.Func `dl:"ucp_am_recv_data_nbx"`
	ReleaseData          dl.Func `dl:"ucp_am_data_release"`
	RequestCheckStatus   dl.Func `dl:"ucp_request_check_status"`
	RequestFree          dl.Func `dl:"ucp_request_free"`
	StatusString         dl.Func `dl:"ucs_status_string"`

	// Functions of the underlying library (UCS), found through a handle of
	// libucp.
	DebugDisableSignals dl.Func `dl:"ucs_debug_disable_signals,optional"`
	GlobalOptsSet       dl.Func `dl:"ucs_global_opts_set_value,optional"`
	GlobalOptsGet       dl.Func `dl:"ucs_global_opts_get_value,optional"`
}

// systemLibrary returns the path of libucp.
func systemLibrary() dl.Library {
	return dl.Library{Names: []string{"libucp.so.0"}, Hint: "apt install libucx0"}
}

// load opens the library, fills its table and undoes the library's changes to the
// process.
func load(from dl.Library) (*api, error) {
	lib, err := dl.Open(from)
	if err != nil {
		return nil, fmt.Errorf("transport ucx: %w", err)
	}
	a := &api{}
	if err := lib.Resolve(a); err != nil {
		return nil, fmt.Errorf("transport ucx: %w", err)
	}
	a.restoreSignals()
	a.quiet()
	return a, nil
}
