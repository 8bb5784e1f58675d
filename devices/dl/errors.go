package dl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
)

// Error is a failed call of a vendor's library. It is devices.ErrDevice.
type Error struct {
	// Call is the function, such as "cuMemcpyDtoHAsync".
	Call string
	// Code is the value that it returned, and Name the vendor's name for it.
	Code int32
	Name string
	// Text is the vendor's explanation, and Hint the remedy; "" for none.
	Text, Hint string
}

// Error names the call, the code's name and number, its explanation and the remedy.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code)
	if e.Text != "" && e.Text != e.Name {
		s += ": " + e.Text
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Unwrap returns devices.ErrDevice.
func (e *Error) Unwrap() error { return devices.ErrDevice }

// IsCode reports whether err is an Error with one of the codes.
func IsCode[C ~int32](err error, codes ...C) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && slices.Contains(codes, C(e.Code))
}
