// Package standin compiles stand-ins for the vendors' libraries: C sources
// that have a vendor's ABI and keep device memory in the host's. A family is
// tested against its stand-in where there is no hardware.
//
// Each source checks what it is called with (sizes, kinds, the device of the
// calling thread, double frees, overlapping copies) and fails a wrong call in
// the way that it is told to by its environment variables, which stand at the
// top of the source.
//
// # Lock order
//
// No locks.
package standin
