package members

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The bounds of a record.
const (
	maxRecord    = 64 << 10 // bytes of its JSON
	maxAddresses = 16
	maxDevices   = 1024
	maxText      = 256 // bytes of an address, an ID, a version or a device's name
)

// errRecord reports a record that breaks a rule.
var errRecord = errors.New("members: invalid record")

// errFull reports a record that exceeds the bounds of a view.
var errFull = fmt.Errorf("members: a view is limited to %d nodes and %d bytes in total", MaxNodes, maxBytes)

// prefix begins the names of records in the coordination service.
const prefix = "nodes/"

// Validate reports why the record must not be published: it needs a valid name, up to 16
// addresses and 1024 devices, and texts of up to 256 bytes.
func (r Record) Validate() error {
	if err := r.Name.Validate(); err != nil {
		return err
	}
	if len(r.Addresses) > maxAddresses || len(r.Devices) > maxDevices {
		return fmt.Errorf("node %s has %d addresses and %d devices; at most %d and %d are allowed: %w",
			r.Name, len(r.Addresses), len(r.Devices), maxAddresses, maxDevices, errRecord)
	}
	texts := append([]string{r.ID, r.Version}, r.Addresses...)
	for _, d := range r.Devices {
		texts = append(texts, d.Name, d.Model)
	}
	for _, text := range texts {
		if len(text) > maxText {
			return fmt.Errorf("node %s: a text has %d bytes, at most %d are allowed: %w", r.Name, len(text), maxText, errRecord)
		}
	}
	return nil
}

func encode(r Record) ([]byte, error) {
	p, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("members: encode record: %w", err)
	}
	if len(p) > maxRecord {
		return nil, fmt.Errorf("the record has %d bytes, at most %d are allowed: %w", len(p), maxRecord, errRecord)
	}
	return p, nil
}

// decode parses and validates the value found under a name. Unknown fields come from a
// later version and are ignored.
func decode(name string, p []byte) (Record, error) {
	if len(p) > maxRecord {
		return Record{}, fmt.Errorf("record of %d bytes: %w", len(p), errRecord)
	}
	var r Record
	if err := json.Unmarshal(p, &r); err != nil {
		return Record{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	if prefix+string(r.Name) != name {
		return Record{}, fmt.Errorf("entry %q has the record of node %q: %w", name, string(r.Name), errRecord)
	}
	r.Lapsed = time.Time{} // each node determines that itself
	return r, r.Validate()
}

// clone returns a copy that shares no memory with r.
func (r Record) clone() Record {
	r.Addresses = slices.Clone(r.Addresses)
	r.Devices = slices.Clone(r.Devices)
	return r
}

// equal reports whether two records have the same content.
func (r Record) equal(o Record) bool {
	return r.Name == o.Name && r.Epoch == o.Epoch && r.ID == o.ID && r.Version == o.Version && r.Held == o.Held && r.Life == o.Life &&
		r.Started.Equal(o.Started) && r.Lapsed.Equal(o.Lapsed) && slices.Equal(r.Addresses, o.Addresses) && slices.Equal(r.Devices, o.Devices)
}

// MaxNodes bounds the nodes of a view, and maxBytes the total size of their records in
// bytes. Beyond that, the records that came first are kept.
const (
	MaxNodes = 4096
	maxBytes = 64 << 20
)
