// Package spin reads a connection whose peer is about to answer: it polls the
// socket for some microseconds before it sleeps, since waking up takes longer
// than the answer of a peer on the same machine.
package spin
