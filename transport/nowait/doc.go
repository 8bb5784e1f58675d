// Package nowait reads from and writes to a socket what is possible without
// waiting. A goroutine that reads from a peer may answer this way: if it waited for
// the peer to read, two peers could wait for each other forever.
//
// Its calls do not notify Go's runtime. A system call that does so wakes the runtime's monitor if
// the process was idle, which then looks for work every 20 µs, for some milliseconds, and delays
// a copy of 16 MiB that runs meanwhile by up to a third. So the bytes must be in memory that is there: the runtime would
// wait for a thread that fetches a page.
package nowait
