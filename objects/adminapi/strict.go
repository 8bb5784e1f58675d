package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrJSON reports JSON that does not match the expected type.
var ErrJSON = errors.New("adminapi: invalid JSON")

// Unmarshal decodes JSON strictly: exactly one value, without unknown fields.
//
// Errors: ErrJSON.
func Unmarshal(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", ErrJSON, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: extra data after the JSON value", ErrJSON)
	}
	return nil
}

// CloseAll closes descriptors, ignoring nil entries.
func CloseAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // nothing was written through it
		}
	}
}
