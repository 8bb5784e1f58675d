package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// pages is the folder of the measured pages.
const pages = "docs/benchmarks/"

// measured is one measured page, as read back from the document.
type measured struct {
	date, machine string
	verdicts      map[string]reading           // by row and text: "host tier, dd read: host / tmpfs"
	figures       map[string]map[string]string // by row and side: "8.10 GB/s"
}

// reading is a ratio of a table.
type reading struct {
	ratio  float64
	atMost bool // less is better
}

// readPage reads the measured part of a page.
func readPage(path, begin string) (*measured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	_, text, found := strings.Cut(string(data), begin)
	if !found {
		return nil, fmt.Errorf("%s has no measured part %q", path, strings.TrimSpace(begin))
	}
	m := &measured{verdicts: map[string]reading{}, figures: map[string]map[string]string{}}
	verdict := regexp.MustCompile(`^\| (.*) \| (≥|<) [^|]* \| ([0-9.]+) \|`)
	figures := regexp.MustCompile(`^- \*\*(.*)\*\*: (.*?)(?:; load .*)?\.$`)
	side := regexp.MustCompile(`(?:^|, )(.+?) ([0-9.]+(?:/s| [GMµ]?[A-Za-z/]+)?)(?:$|(?:, ))`)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "- date: "); ok {
			m.date = rest
		} else if rest, ok = strings.CutPrefix(line, "- machine: "); ok {
			m.machine = rest
		} else if v := verdict.FindStringSubmatch(line); v != nil {
			ratio, err := strconv.ParseFloat(v[3], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", path, line, err)
			}
			m.verdicts[v[1]] = reading{ratio, v[2] == "<"}
		} else if f := figures.FindStringSubmatch(line); f != nil {
			of := map[string]string{}
			for rest := f[2]; rest != ""; {
				at := side.FindStringSubmatchIndex(rest)
				if at == nil {
					break
				}
				of[rest[at[2]:at[3]]] = rest[at[4]:at[5]]
				rest = rest[at[1]:]
			}
			m.figures[f[1]] = of
		}
	}
	return m, nil
}
