// Package runner runs a job: it starts the ranks, each with its rank number, its memory
// and the addresses of the others, and ensures that nothing of the job remains after its
// end.
//
//	Plan     describes the job: from flags, and from a file (Config)
//	  │      checked completely before anything is created
//	  ▼
//	watch    the runner's loop: messages of hosts, signals, timers
//	  │
//	host     the runner's view of a machine ─── messages (wire.go) ──┐
//	                                                                 ▼
//	serving  the part of the job on a machine (ServeHost)
//	  │
//	job      the job's directory, the windows and buffers of its ranks
//	  │      inputs are generated or read into them
//	  ▼
//	ranks    one supervisor for each, whose child is the program
//	  │      their output is passed on line by line, prefixed with the rank
//	  ▼
//	golden   outputs are compared with the expected values
//
// # Hosts
//
// The local machine is a host like any other: its part runs in the runner's process, and
// receives the same messages through an in-memory pipe. The part of another machine is a
// process there (hmcfs run-host), started as the user by an agent such as ssh; the
// messages use the agent's standard streams. All hosts complete a step before the next one
// begins:
//
//	brief ─> ready     the plan; the addresses of the ranks
//	book  ─> loaded    the addresses of all ranks; memory, supervisors, inputs are ready
//	start ─> ended …   the programs, one message for each
//	verify, save       verdicts and bytes, of its own ranks
//	bye   ─> done      nothing is left
//
// Messages have bounded sizes; unknown fields are errors. The runner accepts from a host
// only messages about its own ranks, in the order of the steps. It never blocks on a host:
// outgoing messages are queued, and a host that is silent or violates the protocol is
// lost. A host that no longer hears from its runner ends its part.
//
// # The end
//
// A supervisor (Supervise) is a process of this same program, between the runner and one
// rank. It is a subreaper: the kernel makes it the parent of every orphaned process of its
// rank, so it finds them all. It kills them when
//
//   - the program has ended: its background processes end too;
//   - the runner says so: another rank has failed, the timeout has expired, a signal has
//     arrived;
//   - the runner has ended, even by SIGKILL: this closes the pipe between them.
//
// If a supervisor is killed, the kernel kills its program (PDEATHSIG), and the runner
// kills the rest: it finds background processes of that program by a variable in their
// environment.
//
// # Memory
//
// A window, and a buffer outside of windows, is anonymous memory (memfd) of the runner,
// sealed against changes of its size: it has no name outside of the job's directory, and
// is freed with its last user, so that jobs can't access each other's memory by mistake.
// With Options.Dir they are files there instead, for example files of a mount.
//
// # Lock order
//
// The locks, hostBarrier.mu, lines.mu and sender.mu, are leaves: no lock is taken while they
// are held.
package runner
