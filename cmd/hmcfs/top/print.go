package top

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// headline returns the line that identifies the mount.
func (r Report) headline() string {
	return fmt.Sprintf("%s  hmcfs %s  up %s  daemon %v", wire.Printable(r.MountPoint, '?'), r.Version,
		ago(time.Duration(r.UptimeSeconds*float64(time.Second))), r.Resident)
}

// Print writes the report as text: every table with all of its rows, sorted by rate.
func (r Report) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  rates over %.1fs\n", r.headline(), r.Seconds)
	for _, s := range r.sections(r.At) {
		if len(s.rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", s.title)
		for _, line := range s.sorted(byRate, false, "").lines(0) {
			fmt.Fprintln(&b, line)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
