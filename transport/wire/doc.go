// Package wire defines the bytes that two ranks exchange: every frame, its
// bounds, and the numbers that identify things across the network. It opens no
// connection, and allocates no memory for a length that it has not checked.
//
// docs/wire.md draws the frames. All numbers are little-endian. A frame has one
// of two shapes:
//
//	handshake, control, side   Header (8 bytes), then a body of Header.Length
//	data                       DataHeader (32 bytes), then DataHeader.Length
//	                           bytes of payload, for Put and Data
//
// Both begin with the kind and the version of the protocol, so that a peer of
// another version, or one that speaks another protocol, is recognized by its
// first bytes. Every decoder rejects unknown input, and has a fuzz target.
package wire
