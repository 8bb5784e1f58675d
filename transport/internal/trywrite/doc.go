// Package trywrite writes to a socket what fits without waiting. A goroutine
// that reads from a peer may answer that way: if it waited for the peer to
// read, two that wait for each other would wait for ever.
package trywrite
