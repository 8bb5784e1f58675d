package runner

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestShare checks that each rank gets the same number of processors, and that no two ranks
// share one.
func TestShare(t *testing.T) {
	var all unix.CPUSet
	for _, cpu := range []int{1, 2, 5, 8, 9, 70, 71} {
		all.Set(cpu)
	}
	for ranks, each := range map[int]int{2: 3, 3: 2, 7: 1} {
		var taken unix.CPUSet
		for rank := range ranks {
			set, ok := share(&all, rank, ranks)
			if !ok || set.Count() != each {
				t.Fatalf("rank %d of %d has %d processors, %v", rank, ranks, set.Count(), ok)
			}
			for cpu := range 128 {
				if !set.IsSet(cpu) {
					continue
				}
				if !all.IsSet(cpu) || taken.IsSet(cpu) {
					t.Errorf("rank %d of %d has processor %d, which is not ours or another's", rank, ranks, cpu)
				}
				taken.Set(cpu)
			}
		}
	}
	if _, ok := share(&all, 0, 8); ok {
		t.Error("8 ranks share 7 processors")
	}
}

// TestBind checks that the affinity of a thread is restored.
func TestBind(t *testing.T) {
	var before, within, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	j := &job{plan: &Plan{}, brief: &brief{Count: before.Count()}}
	leave := j.bind(0)
	_ = unix.SchedGetaffinity(0, &within) // it worked a moment ago
	leave()
	_ = unix.SchedGetaffinity(0, &after)
	if j.Count > 1 && within.Count() != 1 || after != before {
		t.Errorf("%d processors, then %d, then %d", before.Count(), within.Count(), after.Count())
	}
	j.plan.Unbound = true
	defer j.bind(0)()
	if _ = unix.SchedGetaffinity(0, &within); within != before {
		t.Error("it is bound")
	}
}
