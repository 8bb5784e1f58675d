// Package spin reads a connection whose peer is about to answer: it asks the
// socket again and again for some microseconds before it sleeps, since to be
// woken takes longer than the answer of a peer on the same machine.
package spin
