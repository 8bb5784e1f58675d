package measure

import (
	"errors"
	"sync"
)

// AtOnce calls a function for each number below n at the same time, and returns all errors.
func AtOnce(n int, do func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}
