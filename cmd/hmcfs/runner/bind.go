package runner

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// bind restricts the calling goroutine, and the processes it starts, to a rank's share of
// the available processors, until leave is called. The kernel tends to wake a rank on the
// processor of the rank that has sent to it, and ranks that poll then compete for it. bind
// does nothing if there are more ranks on this host than processors, or if the plan
// disables it.
func (j *job) bind(rank int) (leave func()) {
	stay := func() {}
	if j.plan.Unbound || rank < j.First || j.Count < 2 {
		return stay
	}
	runtime.LockOSThread()
	var before unix.CPUSet
	if unix.SchedGetaffinity(0, &before) == nil {
		if set, ok := share(&before, rank-j.First, j.Count); ok && unix.SchedSetaffinity(0, &set) == nil {
			return func() {
				// This affinity was allowed before. If it no longer is, the goroutine stays
				// locked, so that its thread ends with it.
				if unix.SchedSetaffinity(0, &before) == nil {
					runtime.UnlockOSThread()
				}
			}
		}
	}
	runtime.UnlockOSThread()
	return stay
}

// share returns the processors of one of several ranks: adjacent ones, the same number for
// each rank.
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
