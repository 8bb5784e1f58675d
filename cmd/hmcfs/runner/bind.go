package runner

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// bind keeps the calling goroutine, and the processes it starts, on a rank's
// share of the processors that we may use, until it calls leave. The kernel
// tends to wake a rank where the one runs that has sent to it, and ranks that
// wait by looking then keep each other from running. It does nothing where
// there are more ranks on this host than processors, or the plan says no.
func (j *job) bind(rank int) (leave func()) {
	stay := func() {}
	if j.plan.Unbound || rank < j.first || j.count < 2 {
		return stay
	}
	runtime.LockOSThread()
	var before unix.CPUSet
	if unix.SchedGetaffinity(0, &before) == nil {
		if set, ok := share(&before, rank-j.first, j.count); ok && unix.SchedSetaffinity(0, &set) == nil {
			return func() {
				// It was allowed before. A thread for which it is so no more ends with
				// its goroutine, which stays locked to it.
				if unix.SchedSetaffinity(0, &before) == nil {
					runtime.UnlockOSThread()
				}
			}
		}
	}
	runtime.UnlockOSThread()
	return stay
}

// share is the processors of one of some ranks: neighbours, and as many for each
// rank.
func share(all *unix.CPUSet, rank, ranks int) (set unix.CPUSet, ok bool) {
	each := all.Count() / ranks
	if each == 0 {
		return set, false
	}
	seen := 0
	for cpu := 0; seen < (rank+1)*each; cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		if seen >= rank*each {
			set.Set(cpu)
		}
		seen++
	}
	return set, true
}
