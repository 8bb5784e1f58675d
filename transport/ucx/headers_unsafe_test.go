package ucx

import (
	"reflect"
	"unsafe"
)

// constants returns those of consts.go under the headers' names.
func constants() map[string]int64 {
	return map[string]int64{
		"UCP_PARAM_FIELD_FEATURES": paramFeatures, "UCP_PARAM_FIELD_MT_WORKERS_SHARED": paramWorkersShared,
		"UCP_PARAM_FIELD_ESTIMATED_NUM_EPS": paramEstimatedEps,
		"UCP_FEATURE_RMA":                   featureRMA, "UCP_FEATURE_WAKEUP": featureWakeup,
		"UCP_ATTR_FIELD_THREAD_MODE":         contextThreadMode,
		"UCP_WORKER_PARAM_FIELD_THREAD_MODE": workerThreadMode, "UCP_WORKER_PARAM_FIELD_FLAGS": workerFlags,
		"UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK": workerIgnoreLeak,
		"UCS_THREAD_MODE_SERIALIZED":          threadModeSerialized, "UCS_THREAD_MODE_MULTI": threadModeMulti,
		"UCP_EP_PARAM_FIELD_REMOTE_ADDRESS": epRemoteAddress, "UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE": epErrorMode,
		"UCP_EP_PARAM_FIELD_ERR_HANDLER": epErrorHandler, "UCP_EP_PARAM_FIELD_USER_DATA": epUserData,
		"UCP_EP_CLOSE_FLAG_FORCE":         epCloseForce,
		"UCP_ERR_HANDLING_MODE_NONE":      errorModeNone,
		"UCP_ERR_HANDLING_MODE_PEER":      errorModePeer,
		"UCP_OP_ATTR_FIELD_FLAGS":         opFlags,
		"UCP_OP_ATTR_FIELD_MEMORY_TYPE":   opMemoryType,
		"UCS_MEMORY_TYPE_HOST":            memoryHost,
		"UCP_MEM_MAP_PARAM_FIELD_ADDRESS": memMapAddress, "UCP_MEM_MAP_PARAM_FIELD_LENGTH": memMapLength,
		"UCP_MEM_MAP_PARAM_FIELD_FLAGS": memMapFlags, "UCP_MEM_MAP_PARAM_FIELD_PROT": memMapProt,
		"UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE": memMapMemoryType, "UCP_MEM_MAP_ALLOCATE": memMapAllocate,
		"UCP_MEM_MAP_PROT_LOCAL_READ": protLocalRead, "UCP_MEM_MAP_PROT_LOCAL_WRITE": protLocalWrite,
		"UCP_MEM_MAP_PROT_REMOTE_READ": protRemoteRead, "UCP_MEM_MAP_PROT_REMOTE_WRITE": protRemoteWrite,
		"UCP_MEM_ATTR_FIELD_ADDRESS": memQueryAddress, "UCP_MEM_ATTR_FIELD_LENGTH": memQueryLength,
		"UCP_ENTITY_NAME_MAX": entityNameMax,
		"UCS_OK":              int64(statusOK), "UCS_INPROGRESS": int64(statusInProgress),
		"UCS_ERR_NO_DEVICE": int64(statusNoDevice), "UCS_ERR_BUSY": int64(statusBusy),
		"UCS_ERR_CANCELED": int64(statusCanceled), "UCS_ERR_UNREACHABLE": int64(statusUnreachable),
		"(intptr_t)UCS_ERR_LAST": int64(firstError),
		"sizeof(ucs_status_t)":   int64(unsafe.Sizeof(statusOK)),
	}
}

// layouts returns the sizes of structures and the offsets of their fields.
func layouts() map[string]int64 {
	out := map[string]int64{}
	for _, s := range []struct {
		name   string
		value  any
		fields []string // in the order of ours, those without a name left out
	}{
		{"ucp_params_t", contextParams{}, []string{
			"field_mask", "features", "request_size", "request_init", "request_cleanup",
			"tag_sender_mask", "mt_workers_shared", "estimated_num_eps", "estimated_num_ppn", "name",
		}},
		{"ucp_context_attr_t", contextAttr{}, []string{"field_mask", "request_size", "thread_mode", "memory_types", "name"}},
		{"ucp_worker_params_t", workerParams{}, []string{
			"field_mask", "thread_mode", "cpu_mask", "events", "user_data", "event_fd", "flags",
			"name", "am_alignment", "client_id",
		}},
		{"ucp_ep_params_t", endpointParams{}, []string{
			"field_mask", "address", "err_mode", "err_handler.cb", "err_handler.arg", "user_data",
			"flags", "sockaddr", "conn_request", "name", "local_sockaddr",
		}},
		{"ucs_sock_addr_t", socketAddress{}, []string{"addr", "addrlen"}},
		{"ucp_mem_map_params_t", memMapParams{}, []string{"field_mask", "address", "length", "flags", "prot", "memory_type"}},
		{"ucp_mem_attr_t", memAttr{}, []string{"field_mask", "address", "length", "mem_type"}},
		{"ucp_request_param_t", requestParam{}, []string{
			"op_attr_mask", "flags", "request", "cb", "datatype", "user_data", "reply_buffer",
			"memory_type", "recv_info", "memh",
		}},
	} {
		typ := reflect.TypeOf(s.value)
		out["sizeof("+s.name+")"] = int64(typ.Size())
		named := 0
		for f := range typ.Fields() {
			if f.Name != "_" {
				out["offsetof("+s.name+", "+s.fields[named]+")"] = int64(f.Offset)
				named++
			}
		}
	}
	return out
}
