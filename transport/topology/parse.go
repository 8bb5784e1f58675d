package topology

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// MaxFile is the maximum size, in bytes, of a file that is read.
const MaxFile = 64 << 20

// Parse parses a topology.json, a rank table of version 1 or 2.0, or a topology
// file of version 2.0, and detects which it is.
//
// Errors: ErrFile, as a FieldError for each fault.
func Parse(text []byte) (*Graph, error) {
	if len(text) > MaxFile {
		return nil, fault("file", "%d bytes; the limit is %d", len(text), MaxFile)
	}
	var is struct {
		Version json.RawMessage `json:"version"`
		Devices json.RawMessage `json:"devices"`
		Servers json.RawMessage `json:"server_list"`
		Ranks   json.RawMessage `json:"rank_list"`
		Peers   json.RawMessage `json:"peer_list"`
		Edges   json.RawMessage `json:"edge_list"`
	}
	if err := decode(text, &is, false); err != nil {
		return nil, err
	}
	switch {
	case is.Devices != nil:
		return parseOwn(text)
	case is.Servers != nil:
		return parseRankTable1(text)
	case is.Ranks != nil:
		return parseRankTable2(text)
	case is.Peers != nil || is.Edges != nil:
		return parseTopoFile(text)
	}
	return nil, fault("file", "no devices, server_list, rank_list or peer_list: not a topology.json, rank table or topology file")
}

// parseOwn parses topology.json. It refuses unknown fields: a misspelled field
// would silently result in a slow link.
func parseOwn(text []byte) (*Graph, error) {
	var file struct {
		Version string `json:"version"`
		Devices []struct {
			Device
			// NUMA hides the field of Device: 0 is a node, and a missing value
			// means none.
			NUMA *int `json:"numa"`
		} `json:"devices"`
		Links []Link `json:"links"`
	}
	if err := decode(text, &file, true); err != nil {
		return nil, err
	}
	if file.Version != Version {
		return nil, fault("version", "%q is not %q", file.Version, Version)
	}
	devices := make([]Device, len(file.Devices))
	for i, d := range file.Devices {
		devices[i] = d.Device
		devices[i].NUMA = -1
		if d.NUMA != nil {
			devices[i].NUMA = max(-1, *d.NUMA)
		}
	}
	return New(devices, file.Links)
}

// decode decodes one JSON value, with nothing after it.
func decode(text []byte, into any, strict bool) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if strict {
		d.DisallowUnknownFields()
	}
	err := d.Decode(into)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = errors.New("unexpected text after the end")
		}
	}
	field := "file"
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is && wrong.Field != "" {
		field = wrong.Field
	}
	if _, is := errors.AsType[*json.SyntaxError](err); is {
		return fault(field, "invalid JSON: %v; give a topology.json, a rank table or a topology file of HCCL", err)
	}
	return fault(field, "%v", err)
}

// number is an integer that a file may also write as a string.
type number int64

// UnmarshalJSON accepts 3 and "3".
func (n *number) UnmarshalJSON(text []byte) error {
	if len(text) > 1 && text[0] == '"' {
		text = text[1 : len(text)-1]
	}
	v, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not an integer", text)
	}
	*n = number(v)
	return nil
}

// text is a name that a file may also write as a number.
type text string

// UnmarshalJSON accepts "3" and 3.
func (t *text) UnmarshalJSON(raw []byte) error {
	if len(raw) == 0 || raw[0] != '"' {
		*t = text(raw)
		return nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	*t = text(s)
	return nil
}
