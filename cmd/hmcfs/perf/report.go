package perf

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/control"
)

// Report is what was measured.
type Report struct {
	// Channels and Chunk are those of the sessions.
	Channels int          `json:"channels"`
	Chunk    devices.Size `json:"chunk"`
	Rows     []Row        `json:"rows"`
}

// Row is one measurement. Times are of one operation; that of a tag is half
// of its round trip.
type Row struct {
	// Mode is "latency" or "bandwidth".
	Mode string `json:"mode"`
	// Operation is "tag", "put" or "get".
	Operation string          `json:"operation"`
	Transport control.Network `json:"transport"`
	// Memory is that of both ends; a tag has none.
	Memory   devices.Name `json:"memory,omitempty"`
	Bytes    devices.Size `json:"bytes"`
	Count    int          `json:"count"`
	MedianUS float64      `json:"median_us"`
	P99US    float64      `json:"p99_us"`
	// GBs is Bytes by the median, in 1e9 bytes a second.
	GBs float64 `json:"gb_per_s,omitempty"`
	// Verified says that every byte was looked at afterwards.
	Verified bool `json:"verified"`
}

// WriteCSV writes the rows with the columns of HMC's benchmark. A size in MB
// is in 1e6 bytes, and Gbps are 1e9 bits a second; a tag has no size and no
// bandwidth.
func (r *Report) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"Mode", "Data Size (MB)", "Time(us)", "Bandwidth(Gbps)"}}
	for _, row := range r.Rows {
		mode := fmt.Sprintf("%s-%s", row.Operation, row.Transport)
		if row.Memory != "" {
			mode += "-" + string(row.Memory)
		}
		rows = append(rows, []string{
			mode, number(float64(row.Bytes) / 1e6), number(row.MedianUS), number(float64(row.Bytes) * 8 / (row.MedianUS * 1e3)),
		})
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
