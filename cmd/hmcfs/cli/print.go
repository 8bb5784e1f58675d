package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/wire"
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
type table struct {
	to    io.Writer
	heads []string
	rows  [][]string
}

func newTable(w io.Writer, heads ...any) *table {
	return &table{to: w, heads: mapped(heads, func(h any) string { return fmt.Sprint(h) })}
}

func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		if texts[i] = shown(fmt.Sprint(c)); texts[i] == "" {
			texts[i] = "-"
		}
	}
	t.rows = append(t.rows, texts)
}

// Flush writes the table. A newline before the first head stands before the table.
func (t *table) Flush() error {
	before := ""
	if first, is := strings.CutPrefix(t.heads[0], "\n"); is {
		before, t.heads[0] = "\n", first
	}
	if len(t.rows) == 0 && before != "" {
		return nil
	}
	widths := make([]int, len(t.heads))
	for _, row := range append(t.rows, t.heads) {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var out strings.Builder
	out.WriteString(before)
	for n, row := range append([][]string{t.heads}, t.rows...) {
		for i, c := range row {
			gap := widths[i] + 2 - utf8.RuneCountInString(c)
			if n == 0 {
				c = paint(t.to, bold, c)
			} else {
				c = paintState(t.to, c)
			}
			if out.WriteString(c); i < len(row)-1 {
				out.WriteString(strings.Repeat(" ", gap))
			}
		}
		out.WriteString("\n")
	}
	_, err := io.WriteString(t.to, out.String())
	return err
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

// shown returns a text in one line without control characters: the name of a file of another user, or a peer's
// answer, may have some for the terminal.
func shown(text string) string { return wire.Printable(text, unicode.ReplacementChar) }

// field prints one aligned "name: value" line of a report.
func field(w io.Writer, name string, value any) {
	fmt.Fprintf(w, "%-14s %s\n", name+":", shown(fmt.Sprint(value)))
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
