package lint

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// checkLinks finds links of documents to files and headings of this tree that are not there.
func checkLinks(t *Tree) []Offence {
	there, headings := map[string]bool{}, map[string]map[string]bool{}
	for _, text := range t.Texts {
		for name := text.Path; name != "." && !there[name]; name = path.Dir(name) {
			there[name] = true
		}
		if path.Ext(text.Path) == ".md" {
			headings[text.Path] = anchors(text.Data)
		}
	}
	link := regexp.MustCompile(`\]\(([^)\s:]+)\)`)
	var out []Offence
	for name := range headings {
		for n, line := range proseOf(t, name) {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				file, anchor, _ := strings.Cut(m[1], "#")
				to := name
				if file != "" {
					to = path.Join(path.Dir(name), file)
				}
				switch known := headings[to]; {
				case !there[to] && !strings.HasPrefix(to, ".."):
					out = append(out, Offence{Path: name, Line: n + 1, Text: fmt.Sprintf("links to %s, which is not there", to)})
				case anchor != "" && known != nil && !known[anchor]:
					out = append(out, Offence{Path: name, Line: n + 1, Text: fmt.Sprintf("links to #%s, which %s does not have", anchor, to)})
				}
			}
		}
	}
	return out
}

// proseOf returns the lines of a document, empty where they are in a block of code.
func proseOf(t *Tree, name string) []string {
	var lines []string
	for _, text := range t.Texts {
		if text.Path == name {
			lines = prose(text.Data)
		}
	}
	return lines
}

func prose(data []byte) (lines []string) {
	code := false
	for line := range bytes.Lines(data) {
		fence := bytes.HasPrefix(bytes.TrimSpace(line), []byte("```"))
		code = code != fence
		if code || fence {
			line = nil
		}
		lines = append(lines, string(line))
	}
	return lines
}

// anchors returns the names by which GitHub links to the headings of a document.
func anchors(data []byte) map[string]bool {
	link, dropped := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`), regexp.MustCompile(`[^\pL\pN\-_ ]`)
	out := map[string]bool{}
	for _, line := range prose(data) {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			title = link.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "$1")
			out[strings.ReplaceAll(dropped.ReplaceAllString(title, ""), " ", "-")] = true
		}
	}
	return out
}
