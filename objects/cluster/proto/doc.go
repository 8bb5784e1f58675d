// Package proto is what nodes ask each other, beyond the frames of
// transport/wire: the bodies of the questions of transport/rpc, in CBOR, and
// the codes of errors. docs/wire.md draws it.
//
// Bodies are arrays, not maps: fields are known by their place, and new ones
// are added at the end. Decoding is strict: a body with a field too many, of
// another type, or longer than its bound is refused whole.
package proto
