package ucx

import "strings"

// restoreSignals takes back the handlers that the library has put in place
// when it was loaded: its own for faults, which know nothing of Go's stacks
// and would turn a nil pointer into the end of the process, and one for
// SIGHUP.
func (a *api) restoreSignals() {
	if a.DebugDisableSignals.Present() {
		a.DebugDisableSignals.Call()
	}
}

// quiet keeps the library from writing to the process's output what it also
// returns as an error, unless UCX_LOG_LEVEL asks for another level than the
// library's own.
func (a *api) quiet() {
	if strings.EqualFold(a.globalOption(logLevelName), logLevelDefault) {
		a.setGlobalOption(logLevelName, logLevelQuiet)
	}
}
