package kit

import "runtime/debug"

// Race says whether the test was built with the race detector, under which
// allocation budgets and timings mean nothing.
func Race() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
