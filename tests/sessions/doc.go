// Package sessions has programs with a pair of sessions, of one daemon or of two nodes, for tests that kill daemons meanwhile:
// no call fails, and all bytes are right.
package sessions
