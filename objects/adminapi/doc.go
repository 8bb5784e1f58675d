// Package adminapi is what the admin socket of a mount speaks: HTTP with JSON
// bodies over a Unix socket. Only root and the user who mounted get answers;
// others get 403, but for bind and export on a mount with --allow-other.
//
//	GET  /v1/version            Version
//	GET  /v1/status             Status; ?count=1 counts the objects too
//	GET  /v1/object?ino=N       Object
//	GET  /v1/config             the options and their sources, []Setting
//	POST /v1/fsck               FsckRequest -> FsckReport
//	POST /v1/umount             UmountRequest -> UmountAnswer
//	POST /v1/bind               BindRequest -> BindAnswer
//	POST /v1/export             ExportRequest -> share.Memory, or EndAnswer
//	GET  /metrics               Prometheus text
//	GET  /debug/pprof/…         with --debug only
//
// Every failure has a body of type Error. Fields are only ever added to the
// types of one version; a field that changes its meaning makes a /v2/.
//
// With curl:
//
//	curl --unix-socket /run/hmcfs/mnt-hmc/admin.sock http://hmcfs/v1/status
//	curl --unix-socket … http://hmcfs/v1/export -d '{"path":"cuda0/kv","kind":"ipc"}'
//
// # Descriptors
//
// Memory that is a descriptor is named by process and number above, which only
// root and the process's user can follow. To pass the descriptor itself, a
// client sends bind or export without a body and with
//
//	Connection: Upgrade
//	Upgrade: hmcfs-descriptors
//
// Once it has read the answer, 101, frames take over: each is the length of
// its JSON, in four bytes with the highest first, and the JSON; descriptors
// travel with the first byte (SCM_RIGHTS). Descriptors that come before the
// 101 are lost. The client sends one frame, with a BindRequest or an
// ExportRequest, and gets one, with a Reply.
//
// The first descriptor of a request is the file's, opened in any way, O_PATH
// being enough: it names the file, and shows that the kernel has let its owner
// get there. What he may do with the file is told by its mode, and by what the
// kernel says of who has connected: user, groups and process. The descriptors
// that follow are the memory's. Every one that is announced must come and be
// used by a piece; nothing else may.
//
// The daemon closes the connection behind its reply, unless that was to hold an
// export (ExportRequest.Hold): then the export ends when the client closes it.
//
// # Lock order
//
// No locks.
package adminapi
