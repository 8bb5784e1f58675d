// Package trywrite writes to a socket what fits without waiting. A goroutine that
// reads from a peer may answer this way: if it waited for the peer to read, two
// peers could wait for each other forever.
package trywrite
