// Package ucx reaches the memory of a peer by UCX: libucp.so.0, opened at run
// time. Without the library there is no such transport, and all else works.
//
// # Trust
//
// Only with peers, and on networks, that are trusted with this process. A
// worker of the library listens by itself where its transports say, for all
// interfaces that it finds, without our handshake and without encryption, and
// what comes in there is read by the library. So the communicator takes ucx
// only where it is listed; rdma it takes wherever there is a device for it,
// unless its list of transports leaves that out.
//
// # Two ways
//
//	                    put                          who checks
//	messages            PUT, fetched into place;     the target, at each
//	(default)           the answer: it is there      operation: name, rights,
//	                                                 range
//	one-sided           ucp_put_nbx, and a flush:    the initiator's own side;
//	(RDMA, OneSided)    it is there                  a device its key
//
// One-sided puts and gets are what an RDMA device does by itself. Without one,
// the library does them with the target's processor, and at the target, which
// is told nothing of it, two things are fatal in the library (1.13; the code is
// the same in 1.20): a send that fails while it answers a peer that has gone,
// and answers that are unsent when the worker is destroyed. Whoever is killed in
// the middle of a put takes the target with it. That is why messages are the
// default, and Options.OneSided is for benchmarks, and for peers that live and
// end together.
//
// With messages the library is initialised without RMA, and writes nothing of
// what a peer sends to where the peer says. Small data comes with its message,
// larger data by the transport's rendezvous, straight into its place.
//
// # TCP
//
// TCP is left out unless Options.Transports has it. With it, 1.13 fails
// assertions, which end the process, when an endpoint ends at a bad moment: a
// peer that closes while the two wire up, or in the middle of what is sent from
// its place. The data connections are faster, and have no such moments.
//
// # Speed
//
// Against ucx_perftest's ucp_put_bw with the same UCX_TLS, in turn with it,
// medians of 3, GB/s, on 2 cores that others used
// (BenchmarkAgainstPerftest):
//
//	                              1 MiB          64 MiB
//	posix, one-sided, Alloc       25.3 / 12.0    4.9 / 1.2
//	posix+cma, messages           6.2 / 25.2     3.2 / 0.5
//	posix, messages               0.44 / 24.2    0.26 / 0.69
//	tcp, messages                 0.47 / 0.04    0.94 / 0.02
//
// ucx_perftest polls without pause and suffers more from others than we do. On
// shared memory it puts into memory that the library has made, by one memcpy,
// and 1 MiB stays in the cache: messages do not reach that.
//
// # A dead peer
//
// Transports that can watch their peer do (UCP_ERR_HANDLING_MODE_PEER): the
// library reports it lost, and the provider ends with ErrPeer. Those of shared
// memory can't; a provider that has only those is ended by its session, whose
// control connection breaks, or by its timeout, if nothing moves while something
// is waited for. Either way what is under way completes with the provider's
// error, and no sooner than the library can't touch its memory any more. Close
// asks the peer nothing and waits for nobody.
//
// # Memory
//
// One-sided: an export registers host memory (ucp_mem_map), once for all exports
// inside of it with the same rights, and nothing is registered by an operation;
// Context.Stats counts. Context.Alloc is memory that the library has made, which
// a peer on this host reaches by one memcpy. Messages: nothing is registered.
//
// Device memory at our end goes through pinned slots, three pieces at a time.
// That of the peer is not exported: whoever writes it must be at its device, and
// the data connections have that already.
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
// one thread at a time, any thread, so that it is not locked to one). It sleeps
// on the worker's event descriptor in Go's poller, and is woken by
// ucp_worker_signal. One-sided operations are flushed in batches, and a batch is
// complete when its flush is. Neither kind allocates in its own code; a message
// that comes in costs three small allocations, as a callback from C does.
//
// # What the library does to a process
//
// When it is loaded it sets handlers for faults and SIGHUP, which are taken back:
// a nil pointer stays a panic. It writes its errors to standard output; it is
// kept from that unless UCX_LOG_LEVEL is set to other than its default. Functions
// that C calls can't be freed, and a process can make 2 000: the two of this
// package are made once and serve every Library. Its cache of registrations is
// turned off: it would not see what Go unmaps.
//
// All structures are laid out by hand for 64-bit Linux, and compared with the
// headers by a test.
//
// # Lock order
//
// Transport.mu comes before Context.mu. Provider.mu is a leaf; callbacks from C
// take it while the library makes progress, so that no call of the library that
// makes progress is made under it.
package ucx
