package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

// checkTodo finds comments about open work that do not refer to an issue.
func checkTodo(t *Tree) []Offence {
	left := regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)
	issue := regexp.MustCompile(`#\d+|\bissue \d+`)
	return t.each(func(f *File) []Offence {
		var out []Offence
		for _, group := range f.Syntax.Comments {
			for _, c := range group.List {
				if word := left.FindString(c.Text); word != "" && !issue.MatchString(c.Text) {
					out = append(out, f.offence(c.Pos(), "%s without the number of an issue", word))
				}
			}
		}
		return out
	})
}

// checkPronouns finds comments that refer to software as to a person.
func checkPronouns(t *Tree) []Offence {
	person := regexp.MustCompile(`(?i)\b(he|him|his|himself|whom|whomever)\b`)
	return t.each(func(f *File) []Offence {
		var out []Offence
		for _, group := range f.Syntax.Comments {
			for _, c := range group.List {
				if word := person.FindString(c.Text); word != "" {
					out = append(out, f.offence(c.Pos(), "%q in a comment: a process or a rank is \"it\", or is named", word))
				}
			}
		}
		return out
	})
}

// checkBeginnings finds comments that begin "X is what …": a comment describes X by a verb or a
// noun.
func checkBeginnings(t *Tree) []Offence {
	clause := regexp.MustCompile(`^// \w+ (is|are) (what|who|how|where|when|whether|which|whose)\b`)
	return t.each(func(f *File) []Offence {
		var out []Offence
		for _, group := range f.Syntax.Comments {
			if begins := clause.FindString(group.List[0].Text); begins != "" {
				out = append(out, f.offence(group.Pos(), "a comment begins %q; see the section on comments in CONTRIBUTING.md", begins))
			}
		}
		return out
	})
}

// checkMachinePaths finds paths that exist only on the machine of their author.
func checkMachinePaths(t *Tree) []Offence {
	// Put together so that this file is not an offender.
	private := regexp.MustCompile(`(^|[\s"'` + "`" + `(=:,])(/` + `work/|/` + `root/|/` + `home/\w+/|/` + `Users/\w+/)`)
	var out []Offence
	for _, text := range t.Texts {
		n := 0
		for line := range bytes.Lines(text.Data) {
			n++
			if m := private.FindSubmatch(line); m != nil {
				out = append(out, Offence{
					Path: text.Path, Line: n,
					Text: fmt.Sprintf("%s… is a path of one machine", strings.TrimSpace(string(m[2]))),
				})
			}
		}
	}
	return out
}

// checkNamedTests finds tests that SECURITY.md names, as `FOLDER.TestName`, and that do not
// exist.
func checkNamedTests(t *Tree) []Offence {
	there := map[string]bool{}
	for _, f := range t.Files {
		for _, d := range f.Syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.Test && fn.Recv == nil {
				there[f.Dir+"."+fn.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile("`([a-z][a-z0-9/]*\\.)?(Test[A-Za-z0-9_]*)`")
	var out []Offence
	for _, text := range t.Texts {
		if text.Path != "SECURITY.md" {
			continue
		}
		n := 0
		for line := range bytes.Lines(text.Data) {
			n++
			for _, m := range named.FindAllSubmatch(line, -1) {
				if !there[string(m[1])+string(m[2])] {
					out = append(out, Offence{Path: text.Path, Line: n, Text: fmt.Sprintf("there is no test %s%s; name it as FOLDER.TestName", m[1], m[2])})
				}
			}
		}
	}
	return out
}
