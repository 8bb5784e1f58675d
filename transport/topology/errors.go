package topology

import (
	"errors"
	"fmt"
)

// FieldError reports a fault of a file. It is ErrFile.
type FieldError struct {
	// Field is the place of the fault: "edge_list[2].local_b".
	Field  string
	Reason string
}

// Error names the field.
func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// Is makes the error match ErrFile.
func (e *FieldError) Is(target error) bool { return target == ErrFile }

// fault returns a FieldError.
func fault(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// maxFaults bounds the faults of one file that are reported.
const maxFaults = 20

// faults collects the faults of a file.
type faults struct {
	all  []error
	more int
}

func (f *faults) add(field, format string, args ...any) {
	if len(f.all) == maxFaults {
		f.more++
		return
	}
	f.all = append(f.all, fault(field, format, args...))
}

// err returns all of them joined, or nil.
func (f *faults) err() error {
	if f.more > 0 {
		f.all = append(f.all, fault("and", "%d more", f.more))
		f.more = 0
	}
	return errors.Join(f.all...)
}
