package proto

import "github.com/hmcfs/hmcfs/transport/rpc"

// The error codes that are not only translated. Error codes convey the responder's error to the
// requester; package cluster has the others. Those below 16 belong to rpc.
const (
	CodeCanceled    rpc.Code = 0x10
	CodeTimeout     rpc.Code = 0x11
	CodeShape       rpc.Code = 0x4c
	CodeUnreachable rpc.Code = 0x81
	CodeStale       rpc.Code = 0x82
	// CodeNoHello reports a request before MethodHello.
	CodeNoHello rpc.Code = 0x85

	// CodeErrno up to CodeErrnoLast are the errnos of Linux, which all architectures that
	// hmcfs is built for have in common.
	CodeErrno     rpc.Code = 0x1000
	CodeErrnoLast rpc.Code = 0x1fff
)
