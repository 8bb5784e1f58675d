package bench

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/hmcfs/hmcfs/devices"
)

// Row is the median of one measurement.
type Row struct {
	// Device is the directory; "tmpfs" is the baseline, "a to b" a copy from one device to
	// another.
	Device string `json:"device"`
	What   string `json:"what"`
	// Value is in Unit: bytes ("B/s") or operations ("ops/s") per second, or a factor
	// ("x").
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Ratio is the ratio of Value to the baseline's; 0 if there is none.
	Ratio float64 `json:"ratio,omitempty"`
	// All holds the values of all rounds.
	All []float64 `json:"all"`
}

// Report holds the measurements of a run. Fields may be added, but not changed or removed.
type Report struct {
	MountPoint string       `json:"mount_point"`
	Size       devices.Size `json:"size"`
	Files      int          `json:"files"`
	Rounds     int          `json:"rounds"`
	Rows       []Row        `json:"rows"`
	// Notes describe measurements that were not made as intended.
	Notes []string `json:"notes,omitempty"`
}

// add appends a row for each device; the first one is the baseline.
func (r *Report) add(what, unit string, names []string, all []Series) {
	for i, name := range names {
		row := Row{Device: name, What: what, Unit: unit, Value: all[i].Median(), All: all[i]}
		if i > 0 && unit != times {
			row.Ratio = all[i].Over(all[0]).Median()
		}
		r.Rows = append(r.Rows, row)
	}
}

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "WHAT\tDEVICE\tMEDIAN\tOF TMPFS")
	for _, row := range r.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", row.What, row.Device, Figure(row.Value, row.Unit), ratio(row.Ratio))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	fmt.Fprintln(w, "note: OF TMPFS is the median of the ratios of the rounds, not the ratio of the medians")
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", note)
	}
	return nil
}

// Figure formats a value for people.
func Figure(value float64, unit string) string {
	switch unit {
	case bytesPerSecond:
		return fmt.Sprintf("%.2f GB/s", value/1e9)
	case times:
		return fmt.Sprintf("%.2f x", value)
	}
	return fmt.Sprintf("%.0f %s", value, unit)
}

func ratio(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}
