// Package runner starts the ranks of a job, each with its rank, its memory and
// the others' addresses, and sees to it that nothing of them is left.
//
//	Plan     what a job is: from flags, and from a file (Config)
//	  │      checked whole, before anything is made
//	  ▼
//	watch    the runner's loop: what hosts say, signals, time
//	  │
//	host     a machine as the loop sees it ── messages (wire.go) ──┐
//	                                                               ▼
//	serving  what a machine does of the job (ServeHost)
//	  │
//	job      the job's directory, the windows and buffers of its ranks
//	  │      inputs are generated, or read, into them
//	  ▼
//	ranks    one supervisor for each, whose child is the program
//	  │      what they write is passed on line by line, with the rank before it
//	  ▼
//	golden   outputs are compared with what was expected of them
//
// # Hosts
//
// This machine is a host like the others: its part runs in the runner's process,
// and is told the same over a pipe in memory. Another one's part is a process
// there (hmcfs run-host), begun by an agent such as ssh as the user's own, and is
// told over the agent's standard streams. Each step is taken by all hosts before
// the next one is:
//
//	brief ─> ready     the plan; where the ranks will listen
//	book  ─> loaded    where all listen; memory, supervisors, inputs are there
//	start ─> ended …   the programs, one word for each
//	verify, save       verdicts and bytes, of its own ranks
//	bye   ─> done      nothing is left
//
// Messages are bounded, and of known fields only. The runner believes a host of
// its own ranks, in the order of the steps, and waits for none: what it is told
// is queued, and who is silent, or says what no host says, is lost. A host that
// hears no more of its runner ends its part.
//
// # The end
//
// A supervisor (Supervise) is this same program, between the runner and one
// rank. The kernel gives it every process of its rank whose parent has ended,
// so it finds them all. It ends them when
//
//   - the program has ended: what it left in the background goes too;
//   - the runner says so: another rank has failed, time is over, a signal came;
//   - the runner is gone, even by SIGKILL: the pipe between them is closed then.
//
// A supervisor that is killed takes its program with it, by the kernel's
// PDEATHSIG, and the runner ends the rest. What that program had put into the
// background is found by a variable of its environment then.
//
// # Memory
//
// A window, and a buffer that is in none, is anonymous memory (memfd) of the
// runner, sealed so that nobody can cut it: it has no name outside of the job's
// directory, and is gone with its last user. No other job's memory can be
// touched by mistake. With Options.Dir they are files there instead, such as
// files of a mount.
//
// # Lock order
//
// visits.mu comes before jobBarriers.mu. All others, hostBarrier.mu, lines.mu and sender.mu,
// have nothing inside.
package runner
