// Package adminapi defines the protocol of a mount's admin socket: HTTP with JSON bodies over
// a Unix socket. Only root and the user that mounted get answers; others get 403. The
// exceptions are bind, export, collect, verify and the requests about keys and files on a mount with
// --allow-other, where every user gets answers about what that user may access.
//
//	GET  /v1/version            Version
//	GET  /v1/status             Status; ?count=1 counts the objects too
//	GET  /v1/activity           Activity
//	GET  /v1/page               Page
//	GET  /v1/object?ino=N       Object
//	GET  /v1/config             the options and their sources, []Setting
//	GET  /v1/cluster            Cluster
//	POST /v1/cluster/forget     ForgetRequest -> Cluster
//	POST /v1/fsck               FsckRequest -> FsckReport
//	POST /v1/umount             UmountRequest -> UmountAnswer
//	POST /v1/upgrade            UpgradeRequest -> UpgradeAnswer
//	POST /v1/bind               BindRequest -> BindAnswer
//	POST /v1/export             ExportRequest -> share.Memory, or EndAnswer
//	POST /v1/collect            CollectRequest -> CollectAnswer
//	POST /v1/verify             VerifyRequest -> VerifyAnswer
//	POST /v1/session            SessionLine, which lasts
//	POST /v1/register           Register -> Registered
//	POST /v1/hetero/VERB        Call -> a Line for each key
//	GET  /v1/keys               a Key for each; ?prefix=P, ?published=1, ?after=KEY
//	GET  /v1/events             an Event for each, without end
//	…    /v1/files/NAME         files: see PathFiles
//	GET  /metrics               Prometheus text
//	GET  /debug/pprof/…         with --debug only
//
// Every failure has a body of type Error. Within one version, fields are only ever added to
// the types; a field that changes its meaning requires a /v2/.
//
// With curl:
//
//	curl --unix-socket /run/hmcfs/mnt-hmc/admin.sock http://hmcfs/v1/status
//	curl --unix-socket … http://hmcfs/v1/export -d '{"path":"cuda0/kv","kind":"ipc"}'
//
// # Sessions
//
// A session is one client of heterogeneous objects (package hetero). It is created by a
// request whose response stays open: its first line names the session, a secret of 128 random
// bits. When that connection ends, or only its client-to-server direction, the session ends,
// and with it everything that the client has published, set and registered; a kill -9 has the
// same effect. When the daemon has released all of that, it sends {"ended":true} there and
// closes the connection.
//
// Calls name their session in the header Hmcfs-Session, and are answered only to the user that
// created it. Each is a POST of a Call with a Content-Length, and is answered with lines of
// JSON, one for each key, in any order. Publish, subscribe and calls with "async" send
// {"begun":true} once the call has returned, after the lines of the keys that have completed
// by then, and the lines of the other keys as they complete. A client cancels a call by
// closing its direction of the call's connection: the call ends, and its lines say so. What
// was published stays.
//
// With "Upgrade: hmcfs-frames-3" the response to /v1/session is 101, and the connection carries
// the calls themselves, as binary frames: see package frames and docs/wire.md, "Sessions of clients". Such a session can
// be named over HTTP, too.
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
// Above, memory behind a descriptor is named by process and descriptor number, which only root
// and the process's user can open. To pass the descriptor itself, a client makes the request in a session's frames, with the same
// JSON; a field that is added here is added to docs/wire.md.
//
// # Lock order
//
// No locks.
package adminapi
