// Package region manages memory that peers may access: host or device memory that
// is registered once and then named by offset and size, and the keys that grant
// one peer the right to use it.
//
// # The life of a region
//
//	Table.Alloc, Register, RegisterDevice ──> Buffer
//	    │  inside a range that is registered already: an alias of it
//	    ▼
//	Keys.Grant(buffer, rights) ──> wire.Descriptor, sent to the peer
//	    │  every operation of the peer: Keys.Use checks key, rights and
//	    │  range, and holds the buffer until Use.Release
//	    ▼
//	Keys.Revoke(key), Keys.Close (the session has ended), Buffer.Close
//	    │  no new operation starts; those in progress are waited for
//	    ▼
//	the last buffer of a registration is closed ──> the memory is released
//
// A registration ends with the last of its buffers, whichever that is: a parent
// that is closed first is kept until its aliases are closed too.
//
// # Bounds
//
// Every access names (offset, size), and is checked against the buffer without
// overflow: devices.Range. A size of 0 is in bounds at any offset up to the end.
//
// # Lock order
//
// Table.mu, Keys.mu and Buffer.mu are leaves. Keys.Use, which is on the data
// path, takes none of them: it reads a map that never changes once it is
// published.
package region
