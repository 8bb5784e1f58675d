package vendor

import (
	"unsafe"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// setControl calls hmcfs_standin_control.
func setControl(f dl.Func, path string) {
	text := append([]byte(path), 0)
	f.Call(uintptr(unsafe.Pointer(&text[0])))
}
