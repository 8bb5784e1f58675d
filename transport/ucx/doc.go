// Package ucx accesses the memory of a peer through UCX: libucp.so.0, opened at
// run time. Without the library this transport is unavailable, and everything
// else works.
//
// # Trust
//
// Use it only with peers, and on networks, that are trusted with this process. A
// worker of the library listens where its transports choose, on all interfaces
// that it finds, without our handshake and without encryption, and the library
// reads whatever arrives there. So the communicator uses ucx only where it is
// listed explicitly; it uses rdma wherever there is a device for it, unless its
// list of transports leaves that out.
//
// # Two modes
//
//	                    put                          checked by
//	messages            PUT, fetched into place;     the target, at each
//	(default)           the answer: it is there      operation: name, rights,
//	                                                 range
//	one-sided           ucp_put_nbx, and a flush:    the initiator's own side;
//	(RDMA, OneSided)    it is there                  an RDMA device by its key
//
// An RDMA device performs one-sided puts and gets itself. Without one, the
// library performs them with the target's processor, and there, where our code
// learns nothing of them, two conditions are fatal in the library (1.13; the code
// is the same in 1.20): a send that fails while it answers a peer that has ended,
// and answers that are unsent when the worker is destroyed. A peer that is killed
// in the middle of a put takes the target with it. That is why messages are the
// default, and Options.OneSided is for benchmarks, and for peers that live and
// end together.
//
// With messages the library is initialised without RMA, and writes no data of a
// peer to an address that the peer has chosen. Small data comes with its message,
// larger data by the transport's rendezvous, straight into its place.
//
// # TCP
//
// TCP is left out unless Options.Transports lists it. With it, 1.13 fails
// assertions, which end the process, when an endpoint ends at a bad moment: a
// peer that closes while the two wire up, or in the middle of a zero-copy send.
// The data connections are faster, and have no such failures.
//
// # Speed
//
// Compared with ucx_perftest's ucp_put_bw at the same UCX_TLS, alternating with
// it, medians of 3, GB/s, ours / perftest's, on 2 shared cores
// (BenchmarkAgainstPerftest):
//
//	                              1 MiB          64 MiB
//	posix, one-sided, its memory  25.3 / 12.0    4.9 / 1.2
//	posix+cma, messages           6.2 / 25.2     3.2 / 0.5
//	posix, messages               0.44 / 24.2    0.26 / 0.69
//	tcp, messages                 0.47 / 0.04    0.94 / 0.02
//
// ucx_perftest polls without pause and suffers more from other load than this
// package. On shared memory it puts into memory that the library has allocated, as
// the first row of ours does, by one memcpy, and 1 MiB stays in the cache: messages
// do not reach that.
//
// # A dead peer
//
// Transports that can monitor their peer do so (UCP_ERR_HANDLING_MODE_PEER): the
// library reports it lost, and the provider ends with ErrPeer. Those of shared
// memory can't; a provider that has only those is ended by its session, whose
// control connection breaks, or by its timeout, if there is no progress while an
// operation is pending. Either way pending operations complete with the
// provider's error, and only once the library can no longer access their memory.
// Close sends nothing to the peer and does not wait for it.
//
// # Memory
//
// One-sided: an export registers host memory (ucp_mem_map), once for all exports
// inside it with the same rights, and operations register nothing; Context.Stats
// counts. Messages: nothing is registered.
//
// Device memory at our end goes through pinned slots, three pieces at a time. The
// peer's device memory is not exported: only a process at its device can write
// it, and the data connections have that already.
//
// # The worker's goroutine
//
//	Window.Start ──> ops ──┐                    ┌──> Completer
//	Connect, Import ─ calls┤                    │
//	                       ▼                    │
//	   take ─> post ─> ucp_worker_progress ─> reap, attend
//	              ▲                             │
//	              └── arm, sleep on wakeup <───┘ nothing to do, 64 times
//
// One goroutine for each provider calls its worker (UCS_THREAD_MODE_SERIALIZED:
// one thread at a time, any thread, so the goroutine is not locked to a thread).
// It sleeps on the worker's event descriptor in Go's poller, and is woken by
// ucp_worker_signal. One-sided operations are flushed in batches, and a batch is
// complete when its flush is. Neither mode allocates in its own code; an incoming
// message costs three small allocations, as does any callback from C.
//
// # Effects of the library on the process
//
// When it is loaded it sets handlers for faults and SIGHUP, which this package
// removes again: a nil pointer stays a panic. It writes its errors to standard
// output, which is suppressed unless UCX_LOG_LEVEL differs from its default.
// Callback functions for C can't be freed, and a process can create only 2 000:
// the two of this package are created once and serve every Library. The library's
// registration cache is turned off, because it would not notice memory that Go
// unmaps.
//
// All structures are laid out by hand for 64-bit Linux; a test compares them with
// the headers.
//
// # Lock order
//
// Transport.mu comes before Context.mu. Provider.mu is a leaf; callbacks from C
// take it while the library makes progress, so no library call that makes
// progress is made under it.
package ucx
