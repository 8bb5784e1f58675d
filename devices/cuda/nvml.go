package cuda

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
)

// management is the function table of the management library (NVML), which comes with the
// driver and can query cards without a context.
type management struct {
	Init         dl.Func `dl:"nvmlInit_v2"`
	Shutdown     dl.Func `dl:"nvmlShutdown"`
	HandleByUUID dl.Func `dl:"nvmlDeviceGetHandleByUUID"`
	MemoryInfo   dl.Func `dl:"nvmlDeviceGetMemoryInfo"`
}

// managedMemory is nvmlMemory_t.
type managedMemory struct{ Total, Free, Used uint64 }

// managementLibrary describes the management library; path, if not empty, replaces the
// default name. In a container the library is available with the capability "utility".
func managementLibrary(path string) dl.Library {
	l := dl.Library{
		Names: []string{"libnvidia-ml.so.1"},
		Hint:  "it comes with the NVIDIA driver; in a container, with NVIDIA_DRIVER_CAPABILITIES=compute,utility",
	}
	if path != "" {
		l.Names = []string{path}
	}
	return l
}

// freeOf returns how much of each device's memory is free, by UUID, from the management
// library. Devices unknown to it are omitted.
func (d *Driver) freeOf(entries []entry) (free map[string]devices.Size, err error) {
	m, err := d.managed.Get(func() (*management, error) {
		lib, lerr := dl.Open(managementLibrary(d.management))
		if lerr != nil {
			return nil, lerr
		}
		table := &management{}
		return table, lib.Resolve(table)
	})
	if err != nil {
		return nil, err
	}
	if err := m.init(); err != nil {
		return nil, err
	}
	free = map[string]devices.Size{}
	var errs []error
	for _, e := range entries {
		n, err := m.free(e.UUID)
		if err != nil {
			errs = append(errs, fmt.Errorf("card %d: %w", e.Ordinal, err))
			continue
		}
		free[e.UUID] = n
	}
	return free, errors.Join(append(errs, m.shutdown())...)
}

// managementError turns a code of the management library into an error, without querying
// the library's text for it.
func managementError(call string, code Code) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("%s: error %d: %w", call, code, devices.ErrDevice)
}
