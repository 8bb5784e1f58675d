// Package runner starts the ranks of a job, each with its rank, its memory and
// the others' addresses, and sees to it that nothing of them is left.
//
//	Plan     what a job is: from flags, and from a file (Config)
//	  │      checked whole, before anything is made
//	  ▼
//	job      the job's directory, the windows and buffers of all ranks
//	  │      inputs are generated, or read, into them
//	  ▼
//	ranks    one supervisor for each, whose child is the program
//	  │      what they write is passed on line by line, with the rank before it
//	  ▼
//	golden   outputs are compared with what was expected of them
//
// # Who ends whom
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
// meeting.mu and lines.mu, neither with anything inside.
package runner
