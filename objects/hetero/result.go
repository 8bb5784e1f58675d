package hetero

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Result is the outcome for one key of a call.
type Result struct {
	Key string
	// Err is nil for a key that succeeded.
	Err error
	// Skipped is true if the key already existed and was left unchanged, as ExistingSkip
	// requests; Err is then nil.
	Skipped bool
}

// Results has one Result for each key of a call, in the order of the keys.
type Results []Result

// Room returns n empty results, in the memory of r if that has room for them.
func (r Results) Room(n int) Results {
	if cap(r) < n {
		return make(Results, n)
	}
	r = r[:n]
	clear(r)
	return r
}

// Failed returns the results of the keys that failed, in order.
func (r Results) Failed() Results {
	var failed Results
	for _, one := range r {
		if one.Err != nil {
			failed = append(failed, one)
		}
	}
	return failed
}

// Err joins the errors of all keys that failed, each with its key; nil if every key succeeded.
func (r Results) Err() error {
	var errs []error
	for _, one := range r {
		if one.Err != nil {
			errs = append(errs, OfKey(one.Key, one.Err))
		}
	}
	return errors.Join(errs...)
}

// OfKey returns an error that names the key, once: a text that begins with it is left.
func OfKey(key string, err error) error { return &keyError{key: key, err: err} }

// keyError is the error of a key.
type keyError struct {
	key string
	err error
}

// Error returns the text of the error, which begins with the key.
func (e *keyError) Error() string {
	text, name := e.err.Error(), fmt.Sprintf("key %q", e.key)
	if rest, named := strings.CutPrefix(text, name); named {
		return name + rest
	}
	return name + ": " + text
}

// Unwrap returns the error.
func (e *keyError) Unwrap() error { return e.err }

// Outcome returns the error that a call returns with its results: nil if at least one key
// succeeded, otherwise Err.
func (r Results) Outcome() error {
	if slices.ContainsFunc(r, func(one Result) bool { return one.Err == nil }) {
		return nil
	}
	return r.Err()
}
