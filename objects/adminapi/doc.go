// Package adminapi is what the admin socket of a mount speaks: HTTP with JSON
// bodies over a Unix socket. Only root and the user who mounted get answers;
// others get 403, but for bind, export, collect, verify and what concerns keys on a mount with
// --allow-other, where they get what is theirs.
//
//	GET  /v1/version            Version
//	GET  /v1/status             Status; ?count=1 counts the objects too
//	GET  /v1/object?ino=N       Object
//	GET  /v1/config             the options and their sources, []Setting
//	POST /v1/fsck               FsckRequest -> FsckReport
//	POST /v1/umount             UmountRequest -> UmountAnswer
//	POST /v1/bind               BindRequest -> BindAnswer
//	POST /v1/export             ExportRequest -> share.Memory, or EndAnswer
//	POST /v1/collect            CollectRequest -> CollectAnswer
//	POST /v1/verify             VerifyRequest -> VerifyAnswer
//	POST /v1/session            SessionLine, which lasts
//	POST /v1/register           Register -> Registered
//	POST /v1/hetero/VERB        Call -> a Line for each key
//	GET  /v1/keys               a Key for each; ?prefix=P, ?published=1
//	GET  /v1/events             an Event for each, without end
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
// # Sessions
//
// A session is one client of heterogeneous objects (package hetero). It is
// begun by a request whose answer does not end: its first line names the
// session, a secret of 128 random bits. The end of that connection, of its
// writing direction too, is the end of the session, and with it of what the
// client has published, set and registered; a kill -9 is no other. When the
// daemon has let go of all that, it says {"ended":true} there and closes.
//
// Calls name their session in the header Hmcfs-Session, and are answered only
// to the user who began it. Each is a POST of a Call, whose length is told, and
// is answered by lines of JSON, one for each key, in any order. Publish,
// subscribe and what is asked for with "async" answer with {"begun":true} once
// the call has returned, with the keys before it that have ended by then, and
// go on with the others as they end. A client that closes its direction of a call's
// connection wants the call no more: it ends, and its lines say so. What was
// published stays.
//
// With curl, in one shell, and in another:
//
//	curl -sSN --unix-socket $S -X POST http://hmcfs/v1/session
//	{"session":"3f…"}
//
//	curl -sS --unix-socket $S -H 'Hmcfs-Session: 3f…' http://hmcfs/v1/register \
//	  -d '{"device":"sim0","memory":{"family":"sim","pid":4711,"size":4096,
//	       "pieces":[{"kind":"memfd","fd":5,"offset":0,"size":4096}]}}'
//	{"memory":1}
//	curl -sS --unix-socket $S -H 'Hmcfs-Session: 3f…' http://hmcfs/v1/hetero/mset \
//	  -d '{"keys":["kv"],"lists":[{"device":"sim0","blobs":[{"memory":1,"off":0,"size":4096}]}]}'
//	{"n":0,"key":"kv"}
//	curl -sS --unix-socket $S -H 'Hmcfs-Session: 3f…' http://hmcfs/v1/hetero/wait \
//	  -d '{"keys":["kv","none"],"timeout":"2s"}'
//	curl -sSN --unix-socket $S http://hmcfs/v1/events
//	curl -sS --unix-socket $S 'http://hmcfs/v1/keys?prefix=kv'
//
// # Descriptors
//
// Memory that is a descriptor is named by process and number above, which only
// root and the process's user can follow. To pass the descriptor itself, a
// client sends bind, export or register without a body and with
//
//	Connection: Upgrade
//	Upgrade: hmcfs-descriptors
//
// Once it has read the answer, 101, frames take over: each is the length of
// its JSON, in four bytes with the highest first, and the JSON; descriptors
// travel with the first byte (SCM_RIGHTS). Descriptors that come before the
// 101 are lost. The client sends one frame, with a BindRequest, an
// ExportRequest or a Register, and gets one, with a Reply.
//
// The first descriptor of bind and export is the file's, opened in any way, O_PATH
// being enough: it names the file, and shows that the kernel has let its owner
// get there. What the user may do with the file is told by its mode, and by what the
// kernel says of who has connected: user, groups and process. The descriptors
// that follow, and all of register, are the memory's. Every one that is announced must come and be
// used by a piece; nothing else may.
//
// The daemon closes the connection behind its reply, unless that was to hold an
// export (ExportRequest.Hold): then the export ends when the client closes it.
//
// # Lock order
//
// No locks.
package adminapi
