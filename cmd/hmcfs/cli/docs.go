package cli

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/transport/env"
)

// docTemplates holds the templates of the generated documents.
//
//go:embed docs/*.tmpl
var docTemplates embed.FS

// docsVerb generates documentation from the command tree. It is used by the Makefile.
func (a *app) docsVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "docs (cli | config | man DIR)",
		Short:  "Generate documentation from the commands and options",
		Hidden: true,
		Args:   arguments(1, 2, "cli, config, or man DIR"),
	}
	return runs(cmd, func(_ context.Context, args []string) error {
		root := a.root() //nolint:contextcheck // cobra passes the context to the command
		switch {
		case len(args) == 1 && (args[0] == "cli" || args[0] == "config"):
			return writeDoc(a.Stdout, args[0]+".md.tmpl", root)
		case args[0] == "man" && len(args) == 2:
			if err := writeMan(root, args[1]); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			return nil
		}
		return usage(fmt.Errorf("hmcfs docs: %q is unknown; use cli, config, or man DIR", strings.Join(args, " ")))
	})
}

// writeDoc writes a document about a command, made from a template.
func writeDoc(w io.Writer, name string, cmd *cobra.Command) error {
	t, err := template.New(name).Funcs(template.FuncMap{
		"commands": commands, "others": otherCommands, "page": pageName, "long": longText, "topic": topicText,
		"about": aboutText, "common": commonFlags, "own": ownFlags, "shared": sharedFlags, "group": groupMembers, "anchor": anchor,
		"fill":  func(text string) string { return filled(text, 90) },
		"flags": visibleFlags, "flag": flagName, "default": defaultText, "options": config.Table, "variables": env.Knobs,
		"cell": cell, "code": code, "values": func(text string) string { return cell(strings.ReplaceAll(text, "<", `\<`)) },
		"trim": func(title string) string { return strings.TrimSuffix(title, ":") },
		"roff": roff, "upper": strings.ToUpper, "exits": exitCodes,
	}).ParseFS(docTemplates, "docs/"+name)
	if err != nil {
		return err
	}
	return t.Execute(w, cmd)
}

// commands returns a command and every visible one below it, parents first.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion" {
			all = append(all, commands(c)...)
		}
	}
	return all
}

func otherCommands(than *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(commands(than.Root()), func(c *cobra.Command) bool { return c == than })
}

// pageName returns the name of a command's man page.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func visibleFlags(c *cobra.Command) []*pflag.Flag {
	var all []*pflag.Flag
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			all = append(all, f)
		}
	})
	return all
}

func flagName(f *pflag.Flag) string {
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if word := flagWord(f); word != "" {
		name += " " + word
	}
	return name
}

// aboutText returns the description of a command without what docs/cli.md says once for all commands of
// its topic.
func aboutText(c *cobra.Command) string {
	if c.Long == "" {
		return c.Short + "."
	}
	return c.Long
}

// anchor returns the fragment of a command's section in docs/cli.md.
func anchor(c *cobra.Command) string { return "#" + strings.ReplaceAll(c.CommandPath(), " ", "-") }

// groupMembers returns the visible commands of a group.
func groupMembers(root *cobra.Command, group string) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(root.Commands()), func(c *cobra.Command) bool {
		return c.GroupID != group || !c.IsAvailableCommand() || c.Name() == "help" || c.Name() == "completion"
	})
}

// leastShared is the number of commands with the same flag from which on docs/cli.md describes it once
// for all of them.
const leastShared = 3

// commonFlags returns the flags that many commands share, by name. Options of mounts, which docs/config.md
// describes, are not among them.
func commonFlags(root *cobra.Command) []*pflag.Flag {
	count := map[string]int{}
	var all []*pflag.Flag
	for _, c := range commands(root) {
		for _, f := range visibleFlags(c) {
			if isOption(f) {
				continue
			}
			if count[flagName(f)+f.Usage]++; count[flagName(f)+f.Usage] == leastShared {
				all = append(all, f)
			}
		}
	}
	slices.SortFunc(all, func(a, b *pflag.Flag) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// isOption reports whether a flag is an option of mounts.
func isOption(f *pflag.Flag) bool {
	_, is := f.Value.(*noteValue)
	return is
}

func isCommon(root *cobra.Command, f *pflag.Flag) bool {
	return slices.ContainsFunc(commonFlags(root), func(c *pflag.Flag) bool {
		return flagName(c) == flagName(f) && c.Usage == f.Usage
	})
}

// ownFlags returns the flags of a command that docs/cli.md describes in its section.
func ownFlags(c *cobra.Command) []*pflag.Flag {
	return slices.DeleteFunc(visibleFlags(c), func(f *pflag.Flag) bool { return isOption(f) || isCommon(c.Root(), f) })
}

// sharedFlags returns a line that names the other flags of a command; empty for none.
func sharedFlags(c *cobra.Command) string {
	var names []string
	options := ""
	for _, f := range visibleFlags(c) {
		switch {
		case isOption(f):
			options = "the [options of a mount](config.md)"
		case isCommon(c.Root(), f):
			names = append(names, code("--"+f.Name))
		}
	}
	if len(names) > 0 {
		names = []string{"the [common flags](#common-flags) " + strings.Join(names, ", ")}
	}
	if options != "" {
		names = append(names, options)
	}
	if len(names) == 0 {
		return ""
	}
	return "Also " + strings.Join(names, ", and ") + "."
}

func defaultText(f *pflag.Flag) string {
	if f.DefValue == "[]" || f.Value.Type() == "bool" {
		return ""
	}
	return f.DefValue
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// code formats a word as code.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}

// writeMan writes a man page for each command, and one for the helper of mount(8), into the
// folders of their sections below a directory.
func writeMan(root *cobra.Command, dir string) error {
	for _, c := range commands(root) {
		if err := writePage(filepath.Join(dir, "man1", pageName(c)+".1"), "man.tmpl", c); err != nil {
			return err
		}
	}
	return writePage(filepath.Join(dir, "man8", helperName+".8"), helperName+".8.tmpl", root)
}

// writePage writes one man page.
func writePage(path, template string, cmd *cobra.Command) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(writeDoc(f, template, cmd), f.Close())
}

// roff escapes a text so that it is not interpreted as commands.
func roff(text string) string {
	text = strings.ReplaceAll(text, `\`, `\e`)
	text = strings.ReplaceAll(text, "-", `\-`)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
