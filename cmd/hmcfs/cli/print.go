package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/devices"
)

// addJSON adds --json to a command.
func addJSON(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "Print JSON. Fields are only ever added.")
}

// printJSON writes one value, indented.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// answer prints a value: as JSON, or as text does.
func answer[T any](w io.Writer, asJSON bool, v T, text func(io.Writer, T) error) error {
	if asJSON {
		return printJSON(w, v)
	}
	return text(w, v)
}

// table writes aligned columns.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, heads ...any) table {
	t := table{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	t.row(heads...)
	return t
}

func (t table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		if texts[i] = fmt.Sprint(c); texts[i] == "" {
			texts[i] = "-"
		}
	}
	fmt.Fprintln(t, strings.Join(texts, "\t"))
}

// mapped returns the results of a function for all elements of a list.
func mapped[From, To any](from []From, fn func(From) To) []To {
	out := make([]To, len(from))
	for i, x := range from {
		out[i] = fn(x)
	}
	return out
}

// as returns texts as another type.
func as[To, From ~string](texts []From) []To {
	return mapped(texts, func(t From) To { return To(t) })
}

// field prints one aligned "name: value" line of a report.
func field(w io.Writer, name string, value any) {
	fmt.Fprintf(w, "%-14s %v\n", name+":", value)
}

// fieldIf prints the line of a value that is not empty.
func fieldIf(w io.Writer, name, value string) {
	if value != "" {
		field(w, name, value)
	}
}

func numaText(n int) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// rate formats bytes per second.
func rate(bytes uint64, seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return devices.Size(float64(bytes)/seconds).String() + "/s"
}
