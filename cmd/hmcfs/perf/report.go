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

// Report holds the measurements.
type Report struct {
	// GB is the number of bytes in a GB.
	GB int64 `json:"gb_bytes"`
	// Channels and Chunk are those of the last session.
	Channels int          `json:"channels"`
	Chunk    devices.Size `json:"chunk"`
	// Sessions lists the measured sessions.
	Sessions []Session `json:"sessions"`
	Rows     []Row     `json:"rows"`
}

// Session is one route to the server.
type Session struct {
	Address string `json:"address"`
	// Transport carries the bytes; Because gives, for each faster one, the reason why it is
	// not used.
	Transport comm.Transport `json:"transport"`
	Because   []string       `json:"because,omitempty"`
	// Network is the network of the session's connections.
	Network control.Network `json:"network"`
	// Protection names the protection of the session: secret, plain or local.
	Protection string       `json:"protection"`
	Channels   int          `json:"channels"`
	Chunk      devices.Size `json:"chunk"`
}

// Row is one measurement. Times are for one operation; for a tag, half of its round trip.
type Row struct {
	// Mode is "latency" or "bandwidth".
	Mode string `json:"mode"`
	// Operation is "tag", "put", "get", "send", "recv" or "bounce".
	Operation string `json:"operation"`
	// Transport carries the bytes; Network is that of the session.
	Transport comm.Transport  `json:"transport"`
	Network   control.Network `json:"network"`
	// Memory is the runner's memory, and PeerMemory the server's; empty for tags.
	Memory     devices.Name `json:"memory,omitempty"`
	PeerMemory devices.Name `json:"peer_memory,omitempty"`
	Bytes      devices.Size `json:"bytes"`
	// Count is the number of timed repetitions, each of Depth operations in flight
	// together.
	Count int `json:"count"`
	Depth int `json:"depth"`
	// MedianUS, MeanUS and P99US are in microseconds per operation; for several operations
	// in flight, their share of the time until all are complete.
	MedianUS float64 `json:"median_us"`
	MeanUS   float64 `json:"mean_us"`
	P99US    float64 `json:"p99_us"`
	// GBs is Bytes divided by the median, in 1e9 bytes per second.
	GBs float64 `json:"gb_per_s,omitempty"`
	// Verified reports that every byte was verified afterwards.
	Verified bool `json:"verified"`
}

// Way names the route of the bytes: the transport, or for the session's own connections the
// network.
func (r *Row) Way() string {
	if r.Transport == comm.TCP {
		return string(r.Network)
	}
	return string(r.Transport)
}

// Memories names the memory of both ends; empty for a row without memory.
func (r *Row) Memories() string {
	if r.Memory == r.PeerMemory {
		return string(r.Memory)
	}
	return string(r.Memory + "-" + r.PeerMemory)
}

// WriteCSV writes the rows with the columns of HMC's benchmark. A size in MB is in 1e6
// bytes, and Gbps are 1e9 bits per second; a tag has no size and no bandwidth.
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

// WriteCollectivesCSV writes rows of collectives with the same columns. The bandwidth is
// based on the size of the whole.
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

// columns returns the columns of HMC's benchmark.
func columns(mode string, size devices.Size, micros float64) []string {
	return []string{mode, number(float64(size) / 1e6), number(micros), number(float64(size) * 8 / (micros * 1e3))}
}

// writeCSV writes rows below a header.
func writeCSV(w io.Writer, rows [][]string) error {
	out := csv.NewWriter(w)
	rows = append([][]string{{"Mode", "Data Size (MB)", "Time(us)", "Bandwidth(Gbps)"}}, rows...)
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
