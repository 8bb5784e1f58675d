package perf

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
)

// Report has the measurements.
type Report struct {
	// GB is the number of bytes of a GB.
	GB int64 `json:"gb_bytes"`
	// Channels and Chunk are those of the last session.
	Channels int          `json:"channels"`
	Chunk    devices.Size `json:"chunk"`
	// Sessions are the ways that were measured.
	Sessions []Session `json:"sessions"`
	Rows     []Row     `json:"rows"`
}

// Session is one way to the server.
type Session struct {
	Address string `json:"address"`
	// Transport carries the bytes; Because says, for each faster one, why it
	// is not that.
	Transport comm.Transport `json:"transport"`
	Because   []string       `json:"because,omitempty"`
	// Network is that of the session's connections.
	Network control.Network `json:"network"`
	// Protection names the protection of the session: secret, plain or local.
	Protection string       `json:"protection"`
	Channels   int          `json:"channels"`
	Chunk      devices.Size `json:"chunk"`
}

// Row is one measurement. Times are of one operation; that of a tag is half
// of its round trip.
type Row struct {
	// Mode is "latency" or "bandwidth".
	Mode string `json:"mode"`
	// Operation is "tag", "put" or "get".
	Operation string `json:"operation"`
	// Transport carries the bytes; Network is that of the session.
	Transport comm.Transport  `json:"transport"`
	Network   control.Network `json:"network"`
	// Memory is that of the side that runs, and PeerMemory that of the side
	// that serves; a tag has none.
	Memory     devices.Name `json:"memory,omitempty"`
	PeerMemory devices.Name `json:"peer_memory,omitempty"`
	Bytes      devices.Size `json:"bytes"`
	// Count is the number of times that were taken, each of Depth operations that were
	// begun together.
	Count int `json:"count"`
	Depth int `json:"depth"`
	// MedianUS, MeanUS and P99US are in microseconds, of one operation: where
	// several were begun together, their share of the time until all were
	// complete.
	MedianUS float64 `json:"median_us"`
	MeanUS   float64 `json:"mean_us"`
	P99US    float64 `json:"p99_us"`
	// GBs is Bytes by the median, in 1e9 bytes a second.
	GBs float64 `json:"gb_per_s,omitempty"`
	// Verified says that every byte was looked at afterwards.
	Verified bool `json:"verified"`
}

// Way names what carries the bytes: the transport, or where that is the
// session's own connections the network that they run over.
func (r *Row) Way() string {
	if r.Transport == comm.TCP {
		return string(r.Network)
	}
	return string(r.Transport)
}

// Memories names both ends; a row without memory has none.
func (r *Row) Memories() string {
	if r.Memory == r.PeerMemory {
		return string(r.Memory)
	}
	return string(r.Memory + "-" + r.PeerMemory)
}

// WriteCSV writes the rows with the columns of HMC's benchmark. A size in MB
// is in 1e6 bytes, and Gbps are 1e9 bits a second; a tag has no size and no
// bandwidth.
func (r *Report) WriteCSV(w io.Writer) error {
	var rows [][]string
	for i := range r.Rows {
		row := &r.Rows[i]
		mode := fmt.Sprintf("%s-%s", row.Operation, row.Way())
		if row.Memory != "" {
			mode += "-" + row.Memories()
		}
		rows = append(rows, columns(mode, row.Bytes, row.MedianUS))
	}
	return writeCSV(w, rows)
}

// WriteCollectivesCSV writes rows of collectives with the same columns. The
// bandwidth is that of the bytes of the whole.
func WriteCollectivesCSV(w io.Writer, all []CollectiveRow) error {
	var rows [][]string
	for i := range all {
		row := &all[i]
		words := []string{row.Kind, string(row.Algorithm), row.Path}
		words = slices.DeleteFunc(words, func(word string) bool { return word == "" })
		rows = append(rows, columns(strings.Join(words, "-"), row.Bytes, row.Seconds*1e6))
	}
	return writeCSV(w, rows)
}

// columns are those of HMC's benchmark.
func columns(mode string, size devices.Size, micros float64) []string {
	return []string{mode, number(float64(size) / 1e6), number(micros), number(float64(size) * 8 / (micros * 1e3))}
}

// writeCSV writes rows below their heads.
func writeCSV(w io.Writer, rows [][]string) error {
	out := csv.NewWriter(w)
	rows = append([][]string{{"Mode", "Data Size (MB)", "Time(us)", "Bandwidth(Gbps)"}}, rows...)
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
