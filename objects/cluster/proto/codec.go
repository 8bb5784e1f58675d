package proto

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Encode makes a body.
func Encode(v any) ([]byte, error) {
	p, err := cbor.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return p, nil
}
