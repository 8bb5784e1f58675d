package dl

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// Errors that callers distinguish.
var (
	// ErrNotInstalled reports that no library with one of the names was found.
	ErrNotInstalled = errors.New("dl: library not installed")
	// ErrNoSymbol reports that a library lacks a function.
	ErrNoSymbol = errors.New("dl: symbol missing")
)

// Library describes the library to open.
type Library struct {
	// Names are tried in order. A bare name is searched for by the system's loader, a path
	// is opened as it is.
	Names []string
	// Hint tells a person how to install the library.
	Hint string
}

// Handle is an open library. It is safe for concurrent use.
type Handle struct {
	name   string
	handle uintptr
	hint   string
}

// NotInstalledError names the missing library and how to install it. It is ErrNotInstalled.
type NotInstalledError struct {
	Library Library
	// Reasons are the loader's error texts, one for each name.
	Reasons []string
}

// Error names the library, how to install it, and the loader's error for a file that exists
// and could not be loaded.
func (e *NotInstalledError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s is not installed", e.Library.Names[0])
	for _, reason := range e.Reasons {
		if !strings.Contains(reason, "No such file") {
			fmt.Fprintf(&text, " or does not load: %s", reason)
			break
		}
	}
	if e.Library.Hint != "" {
		fmt.Fprintf(&text, "; %s", e.Library.Hint)
	}
	return text.String()
}

// Is reports whether target is ErrNotInstalled.
func (e *NotInstalledError) Is(target error) bool { return target == ErrNotInstalled }

// Open opens the first library of the list that loads.
//
// Errors:
//   - ErrNotInstalled (as *NotInstalledError) if none loads.
func Open(library Library) (*Handle, error) {
	if len(library.Names) == 0 {
		return nil, fmt.Errorf("library without a name: %w", ErrNotInstalled)
	}
	// The loader keeps the text of the last error per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var reasons []string
	for _, name := range library.Names {
		handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err == nil {
			return &Handle{name: name, handle: handle, hint: library.Hint}, nil
		}
		reasons = append(reasons, err.Error())
	}
	return nil, &NotInstalledError{Library: library, Reasons: reasons}
}

// Name returns the name that the library was opened by.
func (h *Handle) Name() string { return h.name }

// Lookup returns the address of a function.
//
// Errors:
//   - ErrNoSymbol if the library has no symbol of that name.
func (h *Handle) Lookup(symbol string) (Func, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	addr, err := purego.Dlsym(h.handle, symbol)
	if err != nil {
		text := fmt.Sprintf("%s has no symbol %s: it is too old, or of another vendor", h.name, symbol)
		if h.hint != "" {
			text += "; " + h.hint
		}
		return 0, fmt.Errorf("%s: %w", text, ErrNoSymbol)
	}
	return Func(addr), nil
}

// Resolve fills a function table: table is a pointer to a struct whose fields have the tag
// `dl:"symbol"` and are of type Func, or of a Go function type for calls that words can't
// express, such as those with a structure by value. A field tagged `dl:"symbol,optional"`
// stays zero if the library lacks the symbol. All missing symbols are reported in one
// error, and the table must not be used then.
//
// Calling a field of a Go function type is far slower than calling a Func.
//
// It panics if table is not such a pointer: that is a bug of the caller.
func (h *Handle) Resolve(table any) error { return h.ResolvePrefix("", table) }

// ResolvePrefix is Resolve for symbols with a common prefix, which the tags omit.
func (h *Handle) ResolvePrefix(prefix string, table any) error {
	v := reflect.ValueOf(table).Elem()
	var faults []error
	for i := range v.NumField() {
		tag, ok := v.Type().Field(i).Tag.Lookup("dl")
		if !ok {
			continue
		}
		symbol, option, _ := strings.Cut(tag, ",")
		fn, err := h.Lookup(prefix + symbol)
		field := v.Field(i)
		switch {
		case err != nil && option != "optional":
			faults = append(faults, err)
		case err != nil:
		case field.Kind() == reflect.Func:
			purego.RegisterFunc(field.Addr().Interface(), uintptr(fn))
		default:
			field.SetUint(uint64(fn))
		}
	}
	return errors.Join(faults...)
}
