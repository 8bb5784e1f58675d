package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the longest line of a help text.
const helpWidth = 80

// topicKey is the annotation of a command whose help ends with a text that several commands share.
const topicKey = "topic"

// The topics: texts that stand in the help of each of their commands, and once in docs/cli.md.
const (
	topicFiles       = "files"
	topicKeys        = "keys"
	topicPairs       = "pairs"
	topicCollectives = "collectives"
)

// topicText returns the text of a topic.
func topicText(topic string) string {
	switch topic {
	case topicFiles:
		return hmcText
	case topicKeys:
		return keysText
	case topicPairs:
		return pairsText
	case topicCollectives:
		return collectivesText
	}
	return ""
}

// withTopic returns the annotations of a command of a topic.
func withTopic(topic string) map[string]string { return map[string]string{topicKey: topic} }

// longText returns the description of a command, with the text of its topic.
func longText(cmd *cobra.Command) string {
	text := cmp.Or(cmd.Long, cmd.Short+".")
	if more := topicText(cmd.Annotations[topicKey]); more != "" {
		text += "\n\n" + more
	}
	return text
}

// writeHelp writes the help of a command.
func writeHelp(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "%s\n\n", filled(longText(cmd), helpWidth))
	writeUsage(w, cmd)
}

// writeUsage writes how a command is called, and what commands and flags it has.
func writeUsage(w io.Writer, cmd *cobra.Command) {
	line := cmd.UseLine()
	if !cmd.HasParent() {
		line = cmd.CommandPath() + " COMMAND [ARGUMENT]..."
	}
	fmt.Fprintf(w, "%s\n", paint(w, bold, "Usage:"))
	writeItem(w, "  ", "", line, 6)
	if cmd.HasExample() {
		fmt.Fprintf(w, "\n%s\n%s\n", paint(w, bold, "Examples:"), cmd.Example)
	}
	writeCommands(w, cmd)
	if flags := visibleFlags(cmd); len(flags) > 0 {
		fmt.Fprintf(w, "\n%s\n", paint(w, bold, "Flags:"))
		writeItems(w, flags, flagName, func(f *pflag.Flag) string {
			if text := defaultText(f); text != "" {
				return fmt.Sprintf("%s (default %s)", f.Usage, text)
			}
			return f.Usage
		})
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s COMMAND --help describes a command.\n", cmd.CommandPath())
	}
}

// writeCommands writes the commands below a command, by group.
func writeCommands(w io.Writer, cmd *cobra.Command) {
	groups := cmd.Groups()
	if len(groups) == 0 {
		groups = []*cobra.Group{{Title: "Commands:"}}
	}
	for _, g := range groups {
		all := slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool {
			return !c.IsAvailableCommand() || c.GroupID != g.ID
		})
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", paint(w, bold, g.Title))
		writeItems(w, all, (*cobra.Command).Name, func(c *cobra.Command) string { return c.Short })
	}
}

// mostIndent is the widest column of names; what is longer has a line of its own.
const mostIndent = 24

// writeItems writes a column of names and one of texts.
func writeItems[T any](w io.Writer, items []T, name, text func(T) string) {
	indent := 0
	for _, it := range items {
		if n := utf8.RuneCountInString(name(it)) + 4; n <= mostIndent {
			indent = max(indent, n)
		}
	}
	for _, it := range items {
		writeItem(w, "  ", name(it), text(it), max(indent, 6))
	}
}

// writeItem writes a name, and a text that begins at the indent of its further lines.
func writeItem(w io.Writer, margin, name, text string, indent int) {
	lead := margin + name
	lines := strings.Split(filled(text, helpWidth-indent), "\n")
	switch {
	case name == "":
	case utf8.RuneCountInString(lead) > indent-2:
		fmt.Fprintln(w, lead)
		lead = strings.Repeat(" ", indent)
	default:
		lead += strings.Repeat(" ", indent-utf8.RuneCountInString(lead))
	}
	for i, line := range lines {
		if i > 0 {
			lead = strings.Repeat(" ", indent)
		}
		fmt.Fprintln(w, lead+line)
	}
}

// filled breaks the lines of a text at a width. An empty line ends a paragraph, and lines that begin
// with a blank stay as they are.
func filled(text string, width int) string {
	var out, words []string
	flush := func() {
		line := ""
		for _, word := range words {
			switch {
			case line == "":
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
				out, line = append(out, line), word
			default:
				line += " " + word
			}
		}
		if line != "" {
			out = append(out, line)
		}
		words = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == ' ' || line[0] == '\t' {
			flush()
			out = append(out, line)
			continue
		}
		words = append(words, strings.Fields(line)...)
	}
	flush()
	return strings.Join(out, "\n")
}

// flagWord returns the word that stands for the value of a flag: that of its name, which is the same
// for all commands, else that of its type. A flag that takes no value has none.
func flagWord(f *pflag.Flag) string {
	kind := f.Value.Type()
	if kind == "bool" {
		return ""
	}
	for word, names := range flagWords() {
		if slices.Contains(names, f.Name) {
			return word
		}
	}
	switch kind {
	case "duration", "time":
		return "TIME"
	case "size":
		return "SIZE"
	case "int", "number":
		return "N"
	case "stringArray", "stringSlice", "list":
		return "LIST"
	case "word":
		return "WORD"
	}
	return "TEXT"
}

func flagWords() map[string][]string {
	return map[string][]string{
		"ADDRESS": {"advertise", "listen", "local-host"},
		"COMMAND": {"agent"},
		"DEVICE":  {"device"},
		"DIR":     {"baseline", "dir", "log-dir", "out-dir", "runtime-dir", "save", "socket-dir", "state-dir", "workdir"},
		"FD":      {"memfd", "vmm-fd"},
		"FILE": {
			"access-log", "config", "csv", "etcd-ca", "etcd-cert", "etcd-key", "etcd-password-file", "file", "hosts-file", "log-file", "out",
			"report", "secret-file", "svg", "tls-ca", "tls-cert", "tls-key", "topology",
		},
		"HEX":        {"ipc"},
		"JSON":       {"handle"},
		"KIND":       {"event", "kind", "memory", "peer-memory"},
		"LIST":       {"hosts"},
		"MOUNTPOINT": {"mount"},
		"NAME":       {"algorithm", "etcd-user", "family", "node", "operation", "transport"},
		"NODE":       {"forget"},
		"OP":         {"op"},
		"PATH":       {"path", "program", "remote-hmcfs"},
		"PID":        {"pid"},
		"RULE":       {"existing"},
		"SIZES":      {"blobs", "sizes"},
		"SIZE":       {"bytes", "chunk", "length", "offset", "size", "window"},
		"TIME":       {"ttl"},
		"TYPE":       {"dtype"},
		"URL":        {"cluster"},
		"WORD":       {"bind"},
	}
}
