// Package turn decides which goroutine reads a connection. The connection has a
// reader goroutine, and others that wait for the frames it reads; waking one
// goroutine after another takes longer than a frame takes between two processes
// of one machine. While frames come fast, the waiters take turns reading the
// connection themselves:
//
//	the connection's goroutine           a goroutine that waits for a frame
//	reads frames                         Receive: is ready to read
//	a frame for a waiter
//	Yield: releases the turn, sleeps ──> has the turn
//	    │                                waits in the socket, reads, gives it
//	    │                                … again and again
//	    ▼                     Recall  <── a frame that it does not read
//	has the turn again: after Recall, or when nothing was read for a
//	millisecond or two. A goroutine that is reading then is interrupted.
//
// Frames that no goroutine waits for are read that much later, so a goroutine
// that starts to wait for something else from the same peer recalls the turn.
//
// A reader must be able to stop between any two bytes, and leave what it has read
// to the next.
package turn
