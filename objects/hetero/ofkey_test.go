package hetero_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// TestOfKey names the key of an error once.
func TestOfKey(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		`key "a": does not exist`:                  hetero.ErrNotFound,
		`key "a" of node n: does not exist`:        fmt.Errorf(`key "a" of node n: %w`, hetero.ErrNotFound),
		`key "a": key "b": does not exist`:         fmt.Errorf(`key "b": %w`, hetero.ErrNotFound),
		`key "a": the file has it: does not exist`: fmt.Errorf("the file has it: %w", hetero.ErrNotFound),
	} {
		if got := hetero.OfKey("a", err); got.Error() != want || !errors.Is(got, hetero.ErrNotFound) {
			t.Errorf("%v, want %s", got, want)
		}
	}
}
