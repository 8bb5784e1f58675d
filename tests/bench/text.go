package main

import (
	"fmt"
	"strings"
)

// value formats a figure for people.
func value(v float64, unit string) string {
	switch unit {
	case gigabytes:
		return fmt.Sprintf("%.2f GB/s", v/1e9)
	case perSecond:
		return fmt.Sprintf("%.0f/s", v)
	case seconds:
		return fmt.Sprintf("%.2f s", v)
	case micros:
		return fmt.Sprintf("%.1f µs", v*1e6)
	case mebibytes:
		return fmt.Sprintf("%.0f MiB", v)
	case byteUnit:
		return fmt.Sprintf("%.0f B", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// text formats a result in lines.
func (r *result) text() string {
	var b strings.Builder
	for _, f := range r.figures {
		fmt.Fprintf(&b, "    %-24s %s\n", f.name, value(f.series.Median(), r.unit))
	}
	for _, v := range r.verdicts {
		fmt.Fprintf(&b, "    %-24s %.2f, wanted %s%s\n", v.text, v.reached, v.bound, map[bool]string{false: "  MISSED"}[v.ok])
	}
	return b.String()
}

// document formats the table and the facts as Markdown.
func document(f *facts, results []result) string {
	var b strings.Builder
	b.WriteString(f.markdown())
	b.WriteString("| what | target | reached | |\n| --- | --- | --- | --- |\n")
	for _, r := range results {
		for _, v := range r.verdicts {
			fmt.Fprintf(&b, "| %s: %s | %s | %.2f | %s |\n", r.name, v.text, v.bound, v.reached, mark(v.ok))
		}
	}
	b.WriteString("\n### What was measured\n\n")
	for _, r := range results {
		figures := make([]string, len(r.figures))
		for i, fig := range r.figures {
			figures[i] = fig.name + " " + value(fig.series.Median(), r.unit)
		}
		fmt.Fprintf(&b, "- **%s**: %s; load %s.", r.name, strings.Join(figures, ", "), r.load)
		for _, note := range r.notes {
			b.WriteString("\n  " + note)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func mark(ok bool) string {
	if ok {
		return "reached"
	}
	return "**missed**"
}

// The lines of the document that a measured part follows.
const (
	sectionBegin     = "<!-- measured: go run ./tests/bench -write -->\n"
	peersBegin       = "<!-- measured: go run ./tests/bench -peers -write -->\n"
	nodesBegin       = "<!-- measured: go run ./tests/bench -nodes -write -->\n"
	objectsBegin     = "<!-- measured: go run ./tests/bench -objects -write -->\n"
	ranksBegin       = "<!-- measured: go run ./tests/bench -ranks -write -->\n"
	heldBegin        = "<!-- measured: go run ./tests/bench -held -write -->\n"
	collectivesBegin = "<!-- measured: go run ./tests/bench -collectives -write -->\n"
)
