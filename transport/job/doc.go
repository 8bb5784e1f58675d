// Package job joins the processes of a job: it finds out who they are, connects
// them, and gives them memory that all reach, a barrier, and groups of some of
// them.
//
//	o, err := job.FromEnv(os.Getenv)        // what `hmcfs run` has set
//	j, err := job.Init(ctx, o)
//	w, err := j.World().AllocWindows(ctx, 1<<20)
//	copy(w.Local(), …)
//	err = j.World().Barrier(ctx)
//	peer := w.Of(1)                         // nil where it is not on this host
//	err = j.Close()
//
// Ranks of one host share memory, others send: see Backend. Nothing here has a
// name in a file system but the sockets in Options.Dir: what a killed process
// leaves behind is at most its socket, which the next one replaces.
package job
