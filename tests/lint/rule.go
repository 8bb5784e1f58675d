package lint

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"
)

// Rule is a property that holds for the whole tree.
type Rule struct {
	Name  string
	Check func(*Tree) []Offence
}

// Offence is a place where a rule is broken.
type Offence struct {
	Path string
	Line int
	Text string
}

// String returns the place in the format of editors, and the text.
func (o Offence) String() string { return fmt.Sprintf("%s:%d: %s", o.Path, o.Line, o.Text) }

// Rules lists every rule.
func Rules() []Rule {
	return []Rule{
		{"layers", checkLayers},
		{"meeting-point", checkMeetingPoint},
		{"siblings", checkSiblings},
		{"transport", checkTransport},
		{"test-only", checkTestOnly},
		{"shipped", checkShipped},
		{"owned-imports", checkOwnedImports},
		{"unsafe", checkUnsafe},
		{"cgo", checkCgo},
		{"build-tags", checkBuildTags},
		{"package-comment", checkPackageComment},
		{"exported-comment", checkExportedComment},
		{"init", checkInit},
		{"globals", checkGlobals},
		{"exit", checkExit},
		{"environment", checkEnvironment},
		{"zap-globals", checkZapGlobals},
		{"error-text", checkErrorText},
		{"sleep", checkSleep},
		{"todo", checkTodo},
		{"pronouns", checkPronouns},
		{"comment-beginning", checkBeginnings},
		{"size", checkSize},
		{"methods", checkMethods},
		{"machine-paths", checkMachinePaths},
		{"named-tests", checkNamedTests},
		{"links", checkLinks},
	}
}

// sorted orders offences by place and removes duplicates.
func sorted(list []Offence) []Offence {
	slices.SortFunc(list, func(a, b Offence) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(list)
}

// offence describes an offence at a position in the file.
func (f *File) offence(pos token.Pos, format string, args ...any) Offence {
	return Offence{Path: f.Path, Line: f.line(pos), Text: fmt.Sprintf(format, args...)}
}
