// Package standin compiles stand-ins for vendor libraries: C sources with a vendor's ABI that
// keep device memory in host memory. A family is tested against its stand-in where there is no
// hardware.
//
// Each source checks its arguments (sizes, kinds, the device of the calling thread, double
// frees, overlapping copies), and ends the process on a wrong call. The environment variables
// that configure it and make calls fail are listed at the top of standin.h.
//
// # Lock order
//
// No locks.
package standin
