package cuda

import (
	"unsafe"

	"github.com/hmcfs/hmcfs/devices"
)

func (m *management) init() error { return managementError("nvmlInit", code(m.Init.Call())) }

func (m *management) shutdown() error {
	return managementError("nvmlShutdown", code(m.Shutdown.Call()))
}

// free returns the free memory, in bytes, of the device with the given UUID, in the format
// of nvidia-smi.
func (m *management) free(uuid string) (devices.Size, error) {
	text := append([]byte(uuid), 0)
	var handle uintptr
	err := managementError("nvmlDeviceGetHandleByUUID",
		code(m.HandleByUUID.Call(uintptr(unsafe.Pointer(unsafe.SliceData(text))), uintptr(unsafe.Pointer(&handle)))))
	if err != nil {
		return 0, err
	}
	var memory managedMemory
	err = managementError("nvmlDeviceGetMemoryInfo", code(m.MemoryInfo.Call(handle, uintptr(unsafe.Pointer(&memory)))))
	return devices.Size(memory.Free), err
}
