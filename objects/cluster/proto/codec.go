package proto

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// ErrBody is a body that breaks the rules.
var ErrBody = errors.New("proto: malformed body")

// maxDepth bounds the nesting of arrays: a page has entries, these have
// attributes, these have times.
const maxDepth = 6

// maxElements bounds every list before memory is taken for it. Lists of
// structs have bounds of their own: see bounded.
const maxElements = 1 << 16

// modes has the options by which bodies are written and read.
type modes struct {
	enc cbor.EncMode
	// dec reads lists of numbers and texts, page lists of structs too.
	dec, page cbor.DecMode
	err       error
}

//nolint:gochecknoglobals // the same rules for all bodies, worked out once
var codec = sync.OnceValue(newModes)

// newModes makes the modes. Strings are byte strings, since names are bytes to
// Linux, whatever they mean.
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

// Encode makes a body.
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

// Decode reads a body into v, a pointer to one. What it holds is v's own. A
// body has one form: one that Encode would have written otherwise is refused,
// so nothing is read that was not meant.
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
		return fmt.Errorf("decode %T: not in its one form: %w", v, ErrBody)
	}
	return nil
}
