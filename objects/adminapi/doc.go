// Package adminapi is what the admin socket of a mount speaks: HTTP with JSON
// bodies over a Unix socket. Only root and the user who mounted get answers;
// others get 403.
//
//	GET  /v1/version            Version
//	GET  /v1/status             Status; ?count=1 counts the objects too
//	GET  /v1/object?ino=N       Object
//	GET  /v1/config             the options and their sources, []Setting
//	POST /v1/fsck               FsckRequest -> FsckReport
//	POST /v1/umount             UmountRequest -> UmountAnswer
//	GET  /metrics               Prometheus text
//	GET  /debug/pprof/…         with --debug only
//
// Every failure has a body of type Error. Fields are only ever added to the
// types of one version; a field that changes its meaning makes a /v2/.
//
// With curl:
//
//	curl --unix-socket /run/hmcfs/mnt-hmc/admin.sock http://hmcfs/v1/status
package adminapi
