package cudalike

// handleSize is the size of the handles of HIP and MUSA, in bytes.
const handleSize = 64

// handle is hipIpcMemHandle_t and musaIpcMemHandle_t.
type handle struct{ reserved [handleSize]byte }

// openByValue is a function that takes a handle by value, which machine words can't
// express.
type openByValue func(p *uintptr, h handle, flags uint32) int32

func (f openByValue) call(bytes []byte, flags uint32) (p uintptr, result int32) {
	result = f(&p, handle{reserved: [handleSize]byte(bytes)}, flags)
	return p, result
}
