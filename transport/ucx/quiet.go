package ucx

import "strings"

// restoreSignals removes the handlers that the library installed when it was
// loaded: for faults, which know nothing of Go's stacks and would turn a nil
// pointer into the end of the process, and for SIGHUP.
func (a *api) restoreSignals() {
	if a.DebugDisableSignals.Present() {
		a.DebugDisableSignals.Call()
	}
}

// quiet keeps the library from writing to the process's output the errors that it
// also returns, unless UCX_LOG_LEVEL selects another level than the library's
// default.
func (a *api) quiet() {
	if strings.EqualFold(a.globalOption(logLevelName), logLevelDefault) {
		a.setGlobalOption(logLevelName, logLevelQuiet)
	}
}
