// Package admin serves a mount's admin socket: the endpoints of package
// adminapi, the metrics for Prometheus and, when debugging, profiles.
//
// Who asks is told by the kernel (SO_PEERCRED) when the connection is made.
// Only root and the user who mounted are answered.
//
// # Lock order
//
// No locks.
package admin
