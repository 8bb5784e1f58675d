package cuda

type cuEvent uintptr

func (a *api) createEvent() (cuEvent, error) {
	return ask[cuEvent](a, "cuEventCreate", a.EventCreate, cuEventDisableTiming)
}

func (a *api) destroyEvent(e cuEvent) error {
	return a.check("cuEventDestroy", code(a.EventDestroy.Call(uintptr(e))))
}

func (a *api) recordEvent(e cuEvent, s cuStream) error {
	return a.check("cuEventRecord", code(a.EventRecord.Call(uintptr(e), uintptr(s))))
}

// happened reports whether the recorded work is done.
func (a *api) happened(e cuEvent) (bool, error) {
	c := code(a.EventQuery.Call(uintptr(e)))
	if c == codeNotReady {
		return false, nil
	}
	return true, a.check("cuEventQuery", c)
}

// streamAfter makes later work of a stream wait for an event of any stream of this process.
func (a *api) streamAfter(s cuStream, e cuEvent) error {
	return a.check("cuStreamWaitEvent", code(a.StreamWaitEvent.Call(uintptr(s), uintptr(e), 0)))
}
