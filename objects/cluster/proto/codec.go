package proto

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// ErrBody reports a body that violates the format.
var ErrBody = errors.New("proto: malformed body")

// maxDepth bounds the nesting of arrays: a page has entries, these have
// attributes, these have times.
const maxDepth = 6

// maxElements bounds every list before memory is allocated for it. Lists of structs have
// bounds of their own: see bounded.
const maxElements = 1 << 16

// modes holds the options for encoding and decoding bodies.
type modes struct {
	enc cbor.EncMode
	// dec decodes lists of numbers and texts, page also lists of structs.
	dec, page cbor.DecMode
	err       error
}

//nolint:gochecknoglobals // the same modes for all bodies, created once
var codec = sync.OnceValue(newModes)

// newModes returns the modes. Strings are byte strings, since Linux treats names as arbitrary
// bytes.
func newModes() modes {
	enc, err := cbor.EncOptions{
		String:        cbor.StringToByteString,
		NilContainers: cbor.NilContainerAsEmpty,
		IndefLength:   cbor.IndefLengthForbidden,
		TagsMd:        cbor.TagsForbidden,
	}.EncMode()
	options := cbor.DecOptions{
		MaxNestedLevels:    maxDepth,
		MaxArrayElements:   maxElements,
		IndefLength:        cbor.IndefLengthForbidden,
		TagsMd:             cbor.TagsForbidden,
		UTF8:               cbor.UTF8DecodeInvalid,
		ByteStringToString: cbor.ByteStringToStringAllowed,
	}
	dec, failure := options.DecMode()
	options.MaxArrayElements = MaxEntries
	page, another := options.DecMode()
	return modes{enc: enc, dec: dec, page: page, err: errors.Join(err, failure, another)}
}

// Encode encodes a body.
func Encode(v any) ([]byte, error) {
	m := codec()
	if m.err != nil {
		return nil, m.err
	}
	p, err := m.enc.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return p, nil
}

// bounded is a body with bounds beyond those of its types.
type bounded interface{ check() error }

// Decode decodes a body into v, a pointer to one, which does not refer to p afterwards. A body
// has only one valid form: if Encode would have written it differently it is refused, so no
// input is interpreted in an unintended way.
//
// Errors: ErrBody.
func Decode(p []byte, v any) error {
	m := codec()
	if m.err != nil {
		return m.err
	}
	dec := m.dec
	if _, many := v.(*ReadDirAnswer); many {
		dec = m.page
	}
	if err := dec.Unmarshal(p, v); err != nil {
		return fmt.Errorf("decode %T: %w: %w", v, ErrBody, err)
	}
	if b, ok := v.(bounded); ok {
		if err := b.check(); err != nil {
			return fmt.Errorf("decode %T: %w: %w", v, ErrBody, err)
		}
	}
	again, err := m.enc.Marshal(v)
	if err != nil || !bytes.Equal(again, p) {
		return fmt.Errorf("decode %T: not in canonical form: %w", v, ErrBody)
	}
	return nil
}
