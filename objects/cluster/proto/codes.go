package proto

import "github.com/hmcfs/hmcfs/transport/rpc"

// The error codes, which convey the responder's error to the requester. They are part of the
// protocol, so a number is never reused. Those below 16 belong to rpc.
const (
	CodeCanceled rpc.Code = 0x10
	CodeTimeout  rpc.Code = 0x11

	CodeNotExist       rpc.Code = 0x20
	CodeExist          rpc.Code = 0x21
	CodeNotDir         rpc.Code = 0x22
	CodeIsDir          rpc.Code = 0x23
	CodeNotEmpty       rpc.Code = 0x24
	CodeNameTooLong    rpc.Code = 0x25
	CodeInvalidName    rpc.Code = 0x26
	CodeInvalid        rpc.Code = 0x27
	CodeInvalidKey     rpc.Code = 0x28
	CodePermission     rpc.Code = 0x29
	CodeCrossDevice    rpc.Code = 0x2a
	CodeTooManyLinks   rpc.Code = 0x2b
	CodeNoXattr        rpc.Code = 0x2c
	CodeXattrRange     rpc.Code = 0x2d
	CodeFull           rpc.Code = 0x2e
	CodeTooLarge       rpc.Code = 0x2f
	CodeNoRecord       rpc.Code = 0x30
	CodeRecordReadOnly rpc.Code = 0x31
	CodeRecordsClosed  rpc.Code = 0x32
	CodeChanged        rpc.Code = 0x33
	CodeNewer          rpc.Code = 0x34
	CodeCorrupt        rpc.Code = 0x35
	CodeQuota          rpc.Code = 0x36
	CodeXattrSpace     rpc.Code = 0x37
	CodeNoSpace        rpc.Code = 0x38

	CodeObjectLost        rpc.Code = 0x40
	CodeObjectDamaged     rpc.Code = 0x41
	CodeObjectUnsupported rpc.Code = 0x42
	CodeAttrReadOnly      rpc.Code = 0x43
	CodeObjectInvalid     rpc.Code = 0x44
	CodeNoData            rpc.Code = 0x45
	CodeFileTooLarge      rpc.Code = 0x46
	CodeBusy              rpc.Code = 0x47
	CodeForbidden         rpc.Code = 0x48
	CodeInconsistent      rpc.Code = 0x49
	CodeWithdrawn         rpc.Code = 0x4a
	CodeStoreClosed       rpc.Code = 0x4b
	CodeShape             rpc.Code = 0x4c

	CodeOutOfMemory       rpc.Code = 0x60
	CodeDeviceHandle      rpc.Code = 0x61
	CodeDeviceLost        rpc.Code = 0x62
	CodeDeviceClosed      rpc.Code = 0x63
	CodeNoDevice          rpc.Code = 0x64
	CodeDeviceForeign     rpc.Code = 0x65
	CodeDeviceRange       rpc.Code = 0x66
	CodeDeviceFailure     rpc.Code = 0x67
	CodeDeviceUnsupported rpc.Code = 0x68

	CodeNoNode      rpc.Code = 0x80
	CodeUnreachable rpc.Code = 0x81
	CodeStale       rpc.Code = 0x82
	CodeDenied      rpc.Code = 0x83
	CodeVersion     rpc.Code = 0x84
	// CodeNoHello reports a request before MethodHello.
	CodeNoHello rpc.Code = 0x85

	// CodeBody reports a malformed body.
	CodeBody rpc.Code = 0x90
	// CodeCoord reports that the coordination service does not answer the responder.
	CodeCoord rpc.Code = 0x91

	// CodeErrno up to CodeErrnoLast are the errnos of Linux, which all architectures that
	// hmcfs is built for have in common.
	CodeErrno     rpc.Code = 0x1000
	CodeErrnoLast rpc.Code = 0x1fff
)
