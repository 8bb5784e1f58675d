// Package rankserver moves the bytes of a rank that is written in another language: the rank
// starts `hmcfs rank-server`, which joins the job in its place.
//
//	rank (Python) ── frames ──> server ──> job.Job, collective.Group ──> other ranks
//	      └──────── memory that both have mapped ────────┘
//
// The frames are those of objects/frames, with calls of this package: docs/wire.md describes
// them byte by byte. The server allocates all memory, as the library does, and passes its
// descriptor to the rank. A call names ranges of it, so no byte of a message goes through the
// connection.
//
// Calls proceed at the same time, except that those in which all ranks take part run one after
// the other, in the order in which they arrive: sequence. Messages between two ranks start in
// the order in which they arrive.
//
// The server ends when the rank closes the connection, which the kernel does if the rank is
// killed. When the server ends, the other ranks notice as for a rank that is written in Go.
//
// # Memory that is shared by all ranks
//
// Collectives are fastest on memory that all ranks have mapped. A rank may drop such memory at
// any time, but a group unmaps it at all ranks or at none. The memory is therefore kept until
// the next allocation of this kind, when the ranks exchange what they have dropped: what all of
// them have dropped is freed.
//
// # Lock order
//
// server.mu and server.writing are leaves: no lock is taken while they are held.
package rankserver
