// Package proto defines the requests that nodes send each other, beyond the frames of
// transport/wire: the bodies of the requests of transport/rpc, in CBOR, and the error codes.
// docs/wire.md describes the format.
//
// Bodies are arrays, not maps: a field is identified by its position, and new fields are
// appended. Decoding is strict: a body with an extra field, a field of another type, or one
// longer than its bound is rejected as a whole.
package proto
