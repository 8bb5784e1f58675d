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
func OfKey(key string, err error) error {
	if strings.HasPrefix(err.Error(), fmt.Sprintf("key %q", key)) {
		return err
	}
	return fmt.Errorf("key %q: %w", key, err)
}

// Outcome returns the error that a call returns with its results: nil if at least one key
// succeeded, otherwise Err.
func (r Results) Outcome() error {
	if slices.ContainsFunc(r, func(one Result) bool { return one.Err == nil }) {
		return nil
	}
	return r.Err()
}
