// Package turn is who reads a connection. It has a goroutine that does, and
// others that wait for what it reads; to wake one after the other takes longer
// than a frame takes on its way between two processes of one machine. While
// frames come fast, those who wait read in turns by themselves:
//
//	the connection's goroutine           who waits for a frame
//	reads frames                         Want
//	a frame for who waits
//	Yield: lets the turn go, sleeps ──>  Token: has the turn
//	    │                                waits in the socket, reads, Give
//	    │                                … again and again
//	    │                     Unwant  <──
//	    ▼                     Recall  <── a frame that it does not read
//	has the turn again: after Recall, or when nothing was read for a
//	millisecond or two. Who reads then is interrupted.
//
// What comes while nobody waits is read that much later, so who begins to wait
// for something else of the same peer recalls the turn.
//
// A reader must be able to stop between any two bytes, and leave what it
// has read to the next.
package turn
