package cudalike

import (
	"strings"

	"github.com/hmcfs/hmcfs/devices/dl"
)

// codes defines the meaning of a vendor's return codes.
type codes struct {
	// prefix begins the names of the vendor's functions, and is omitted by callers of check.
	prefix string
	// name and text return the vendor's name and explanation of a code.
	name, text func(code int32) string
	// outOfMemory lists the codes for a lack of memory in an allocation.
	outOfMemory []int32
	// fatal lists the codes after which the runtime refuses all work on a device.
	fatal []int32
	// peerEnabled is the code for peer access that is enabled already; 0 if there is no
	// such code.
	peerEnabled int32
}

// check turns the result code of a call into an error.
func (c *codes) check(call string, result uintptr) error {
	code := int32(result)
	if code == 0 {
		return nil
	}
	e := &dl.Error{Call: c.prefix + call, Code: code, Name: "unknown error"}
	if name := c.name(code); name != "" {
		e.Name = name
	}
	if c.text != nil {
		e.Text = oneLine(c.text(code))
	}
	return e
}

// ask calls f(&value, args...), and returns the value; dl.Out restricts the arguments.
func ask[T any](check func(call string, result uintptr) error, call string, f dl.Func, args ...uintptr) (T, error) {
	value, r := dl.Out[T](f, args...)
	return value, check(call, r)
}

// maxText bounds the part of a vendor's explanation that is passed on, in bytes.
const maxText = 300

// oneLine returns the first non-empty line of a vendor's text, truncated to maxText.
func oneLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			return line[:min(len(line), maxText)]
		}
	}
	return ""
}

// sticky reports whether the runtime refuses all work after an error.
func (c *codes) sticky(err error) bool { return dl.IsCode(err, c.fatal...) }

// noMemory reports whether an error is a lack of memory.
func (c *codes) noMemory(err error) bool { return dl.IsCode(err, c.outOfMemory...) }

// tolerate turns the failure with the given code into success: the requested state exists
// already.
func tolerate(err error, code int32) error {
	if code != 0 && dl.IsCode(err, code) {
		return nil
	}
	return err
}
