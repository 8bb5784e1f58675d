// Package job connects the processes of a job. It finds the other ranks, and provides
// memory that all can access, a barrier, and domains of some of the ranks.
//
//	o, err := job.FromEnv(os.Getenv)        // the environment set by `hmcfs run`
//	j, err := job.Init(ctx, o)
//	w, err := j.World().AllocWindows(ctx, 1<<20)
//	copy(w.Local(), …)
//	err = j.World().Barrier(ctx)
//	peer := w.Of(1)                         // nil if it is on another host
//	err = j.Close()
//
// Ranks of one host share memory; others use the network: see Backend. The only files are
// the sockets in Options.Dir, or files with addresses: a killed process leaves behind at
// most these, and the next one replaces them.
package job
