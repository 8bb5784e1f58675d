package kit

import "runtime/debug"

// Race reports whether the test was built with the race detector, under which allocation
// budgets and timings are meaningless.
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
