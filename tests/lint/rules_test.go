package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// example shows what a rule finds. Each bad line ends in a comment "// BAD",
// or holds "BAD" where there is no room for one; a good file has none.
type example struct {
	bad, good map[string]string
}

const ours = `"` + Module + "/"

// examples holds what each rule must find and what it must let pass.
func examples() map[string]example {
	long := strings.Repeat("\t_ = 1\n", maxFuncLines+1)
	return map[string]example{
		"layers": {
			bad: map[string]string{
				"devices/a.go":   "package devices\nimport _ " + ours + `objects" // BAD`,
				"metadata/a.go":  "package metadata\nimport _ " + ours + `devices/sim" // BAD`,
				"transport/a.go": "package transport\nimport (\n_ " + ours + "metadata\" // BAD\n_ " + ours + "devices\"\n)",
				"fs/a_test.go":   "package fs\nimport _ " + ours + `cmd/hmcfs/cli" // BAD`,
				"util/a.go":      "package util\nimport _ " + ours + `devices" // BAD`,
			},
			good: map[string]string{
				"fs/a.go":              "package fs\nimport _ " + ours + `objects"`,
				"objects/a.go":         "package objects\nimport (\n_ " + ours + "metadata\"\n_ " + ours + "devices/host\"\n)",
				"devices/sim/a.go":     "package sim\nimport _ " + ours + `devices"`,
				"devices/a_test.go":    "package devices\nimport _ " + ours + `tests/kit"`,
				"tests/posix_test.go":  "package tests\nimport _ " + ours + `cmd/hmcfs/cli"`,
				"cmd/hmcfs/cli/run.go": "package cli\nimport _ " + ours + `metadata/badgerkv"`,
			},
		},
		"meeting-point": {
			bad: map[string]string{
				"transport/a.go": "package transport\nimport _ " + ours + `metadata" // BAD`,
				"transport/b.go": "package transport\nimport _ " + ours + `devices" // BAD`,
			},
			good: map[string]string{
				"fs/a.go":            "package fs\nimport (\n_ " + ours + "metadata\"\n_ " + ours + "devices\"\n)",
				"objects/a.go":       "package objects\nimport (\n_ " + ours + "metadata\"\n_ " + ours + "transport\"\n)",
				"cmd/hmcfs/cli/a.go": "package cli\nimport (\n_ " + ours + "metadata\"\n_ " + ours + "devices\"\n)",
			},
		},
		"siblings": {
			bad: map[string]string{
				"devices/opencl/a.go": "package opencl\nimport _ " + ours + `devices/sim" // BAD`,
				"metadata/a.go":       "package metadata\nimport _ " + ours + `metadata/badgerkv" // BAD`,
				"metadata/coord/a.go": "package coord\nimport _ " + ours + `metadata/coord/etcd" // BAD`,
			},
			good: map[string]string{
				"devices/opencl/a.go": "package opencl\nimport (\n_ " + ours + "devices/dl\"\n_ " + ours + "devices\"\n)",
				"devices/a_test.go":   "package devices_test\nimport _ " + ours + `devices/sim"`,
				"devices/host/x/a.go": "package x\nimport _ " + ours + `devices/host"`,
				"metadata/keys/a.go":  "package keys\nimport _ " + ours + `metadata/coord/etcd"`,
			},
		},
		"transport": {
			bad: map[string]string{
				"transport/job/a.go":               "package job\nimport _ " + ours + `transport/collective/fusion" // BAD`,
				"transport/region/a.go":            "package region\nimport _ " + ours + `transport/comm" // BAD`,
				"transport/a.go":                   "package transport\nimport _ " + ours + `transport/region" // BAD`,
				"transport/collective/fabric/a.go": "package fabric\nimport _ " + ours + `transport/collective" // BAD`,
				"transport/another/a.go":           "package another\nimport _ " + ours + `transport/wire" // BAD`,
			},
			good: map[string]string{
				"transport/job/a.go":                 "package job\nimport _ " + ours + `transport/collective"`,
				"transport/collective/fusion/a.go":   "package fusion\nimport _ " + ours + `transport/domain"`,
				"transport/internal/seal/a.go":       "package seal\nimport _ " + ours + `transport/internal/gate"`,
				"transport/region/a_test.go":         "package region_test\nimport _ " + ours + `transport/comm"`,
				"transport/collective/fabric/b/a.go": "package b\nimport _ " + ours + `transport/collective/fabric"`,
			},
		},
		"test-only": {
			bad: map[string]string{
				"objects/a.go": "package objects\nimport (\n_ " + ours + "tests/kit\" // BAD\n_ \"testing\" // BAD\n)",
				"fs/a.go":      "package fs\nimport _ " + ours + `tests/fault/devices/faulty" // BAD`,
			},
			good: map[string]string{
				"objects/a_test.go":                 "package objects\nimport _ " + ours + `tests/kit"`,
				"tests/conformance/devicetest/a.go": "package devicetest\nimport (\n_ " + ours + "tests/fault\"\n_ \"testing\"\n)",
			},
		},
		"shipped": {
			bad: map[string]string{
				"cmd/hmcfs/main.go":  "package main\nimport _ " + ours + `cmd/hmcfs/cli"`,
				"cmd/hmcfs/cli/a.go": "package cli\nimport _ " + ours + `objects"`,
				"objects/a.go":       "package objects\nimport _ " + ours + `tests/fault/metadata/faulty" // BAD`,
			},
			good: map[string]string{
				"cmd/hmcfs/main.go":                "package main\nimport _ " + ours + `objects"`,
				"objects/a.go":                     "package objects",
				"objects/a_test.go":                "package objects\nimport _ " + ours + `tests/fault/metadata/faulty"`,
				"tests/fault/metadata/faulty/a.go": "package faulty\nimport _ " + ours + `tests/fault"`,
				"objects/other/kit.go":             "package other",
				"tests/tool/main.go":               "package main\nimport _ " + ours + `tests/kit"`,
				"devices/sim/sim.go":               "package sim",
				"devices/devicetest.go":            "package devices",
			},
		},
		"owned-imports": {
			bad: map[string]string{
				"objects/a.go":        `package objects` + "\n" + `import _ "github.com/hanwen/go-fuse/v2/fuse" // BAD`,
				"metadata/a.go":       `package metadata` + "\n" + `import _ "github.com/dgraph-io/badger/v4" // BAD`,
				"cmd/hmcfs/a.go":      `package main` + "\n" + `import _ "github.com/dgraph-io/badger/v4" // BAD`,
				"metadata/coord/a.go": `package coord` + "\n" + `import _ "go.etcd.io/etcd/client/v3" // BAD`,
				"objects/a_test.go":   `package objects` + "\n" + `import _ "github.com/dgraph-io/badger/v4" // BAD`,
			},
			good: map[string]string{
				"fs/a.go":                "package fs\nimport _ \"github.com/hanwen/go-fuse/v2/fs\"",
				"tests/posix_test.go":    "package tests\nimport _ \"github.com/hanwen/go-fuse/v2/posixtest\"",
				"metadata/badgerkv/a.go": "package badgerkv\nimport _ \"github.com/dgraph-io/badger/v4/options\"",
			},
		},
		"unsafe": {
			bad: map[string]string{"devices/a.go": "package devices\nimport \"unsafe\" // BAD"},
			good: map[string]string{
				"devices/a_unsafe.go":      "package devices\nimport \"unsafe\"",
				"devices/a_unsafe_test.go": "package devices\nimport \"unsafe\"",
			},
		},
		"cgo": {
			bad:  map[string]string{"devices/a.go": "package devices\nimport \"C\" // BAD"},
			good: map[string]string{"devices/a.go": "package devices"},
		},
		"build-tags": {
			bad: map[string]string{
				"devices/a.go": "//go:build linux && cuda // BAD\n\npackage devices",
				"devices/b.go": "//go:build ignore // BAD\n\npackage devices",
			},
			good: map[string]string{
				"devices/a.go": "//go:build linux && !arm64\n\npackage devices",
				"devices/b.go": "//go:build !invariants\n\npackage devices",
				"devices/c.go": "package devices\n\n// The text //go:build cuda in a comment is no constraint.",
			},
		},
		"package-comment": {
			bad: map[string]string{
				"objects/doc.go":     "package objects // BAD",
				"fs/doc.go":          "// Package fs is described here.\npackage fs",
				"fs/a.go":            "// Package fs is described here too. // BAD\npackage fs",
				"metadata/doc.go":    "// It keeps things. // BAD\npackage metadata",
				"devices/a.go":       "package devices // BAD",
				"cmd/hmcfs/main.go":  "package main // BAD",
				"transport/other.go": "// Package transport moves. // BAD\npackage transport",
			},
			good: map[string]string{
				"objects/doc.go":      "// Package objects keeps objects.\npackage objects",
				"objects/a.go":        "package objects",
				"cmd/hmcfs/main.go":   "// Hmcfs mounts device memory.\npackage main",
				"tests/x/a_test.go":   "package x",
				"tests/y/doc.go":      "// Package y has tests in a package of their own.\npackage y",
				"tests/y/y_x_test.go": "package y_test",
			},
		},
		"exported-comment": {
			bad: map[string]string{"fs/a.go": `package fs

func Exported() {} // BAD

type Thing struct{} // BAD

// Documented is.
type Documented[T any] struct{}

func (d *Documented[T]) Method() {} // BAD

const (
	One = /* BAD */ 1
	two = 2
)
`},
			good: map[string]string{"fs/a.go": `package fs

// Exported is documented.
func Exported() {}

func private() {}

type private2 struct{}

func (private2) Method() {}

// The numbers.
const (
	One = 1
	Two = 2
)

const (
	Three = 3 // the third
	// Four is the fourth.
	Four = 4
)
`, "fs/a_test.go": "package fs\nfunc TestX() {}"},
		},
		"init": {
			bad:  map[string]string{"fs/a.go": "package fs\nfunc init() {} // BAD"},
			good: map[string]string{"fs/a.go": "package fs\ntype t struct{}\nfunc (t) init() {}\nfunc initialise() {}"},
		},
		"globals": {
			bad: map[string]string{"fs/a.go": `package fs

var cache = map[string]int{} // BAD

var (
	ErrGone = errors.New("fs: gone")
	count   int // BAD
	current = content.Current // BAD
)

//nolint:gochecknoglobals
var table = []int{1} // BAD
`, "fs/version.go": "package fs\nvar version string // BAD"},
			good: map[string]string{"fs/a.go": `package fs

var ErrGone = errors.New("fs: gone")

var ErrLost = content.ErrLost

var _ Interface = (*node)(nil)

var pattern = regexp.MustCompile("x+")

//go:embed schema.json
var schema []byte

var table = [...]int{1} //nolint:gochecknoglobals // a table that never changes
`, "cmd/hmcfs/cli/version.go": "package cli\nvar version string", "fs/a_test.go": "package fs\nvar update bool"},
		},
		"exit": {
			bad: map[string]string{"objects/a.go": `package objects

import (
	"fmt"
	"log"
	"os"
)

func a(logger *zap.Logger) {
	log.Printf("x") // BAD
	os.Exit(1) // BAD
	fmt.Println("x") // BAD
	logger.Fatal("x") // BAD
	panic("x") // BAD
	panic("x" + y) // BAD
	panic(fmt.Sprintf("x")) // BAD
}
`},
			good: map[string]string{"objects/a.go": `package objects

import "fmt"

func a(log logger, err error) {
	log.Printf("x")
	_ = fmt.Sprint("x")
	panic(err)
}
`, "cmd/hmcfs/main.go": "package main\nimport \"os\"\nfunc main() { os.Exit(1) }"},
		},
		"environment": {
			bad: map[string]string{"fs/a.go": `package fs

import (
	"flag"
	system "os"
)

var home = system.Getenv("HOME") // BAD

func a() { flag.Parse() } // BAD

var lookup = system.LookupEnv // BAD
`},
			good: map[string]string{
				"cmd/hmcfs/cli/a.go": "package cli\nimport \"os\"\nvar home = os.Getenv(\"HOME\")",
				"fs/a_test.go":       "package fs\nimport \"os\"\nvar home = os.Getenv(\"HOME\")",
				"tests/kit/a.go":     "package kit\nimport \"os\"\nvar home = os.Getenv(\"HOME\")",
				"fs/a.go":            "package fs\nvar home = os.Getenv(\"a variable named os\")",
			},
		},
		"zap-globals": {
			bad:  map[string]string{"cmd/a.go": "package a\nimport \"go.uber.org/zap\"\nvar l = zap.L() // BAD"},
			good: map[string]string{"cmd/a.go": "package a\nimport \"go.uber.org/zap\"\nvar l = zap.NewNop()"},
		},
		"error-text": {
			bad: map[string]string{"fs/a.go": `package fs

import "strings"

func a(err error) bool {
	if err.Error() == "x" { // BAD
		return true
	}
	switch err.Error() { // BAD
	}
	return strings.Contains(err.Error(), "x") // BAD
}
`},
			good: map[string]string{"fs/a.go": `package fs

func a(err error) string {
	if strings.Contains(x, "x") {
		return "failed: " + err.Error()
	}
	return err.Error()
}
`, "fs/a_test.go": "package fs\nvar x = err.Error() == \"what a person reads\""},
		},
		"sleep": {
			bad: map[string]string{
				"fs/a_test.go":        "package fs\nimport \"time\"\nfunc a() { time.Sleep(1) } // BAD",
				"tests/bench/main.go": "package bench\nimport \"time\"\nfunc a() { time.Sleep(1) } // BAD",
			},
			good: map[string]string{
				"tests/kit/wait.go": "package kit\nimport \"time\"\nfunc a() { time.Sleep(1) }",
				"fs/a.go":           "package fs\nimport \"time\"\nfunc a() { time.Sleep(1) }",
			},
		},
		"todo": {
			bad: map[string]string{"fs/a.go": "package fs\n// TO" + "DO: later. // BAD"},
			good: map[string]string{
				"fs/a.go": "package fs\n// TO" + "DO(#12): later.\n// TO" + "DO: with issue 12.\nvar TO" + "DO int",
			},
		},
		"comment-beginning": {
			bad: map[string]string{
				"fs/a.go":      "package fs\n// size is ho" + "w many bytes there are. // BAD\nvar size int",
				"fs/a_test.go": "package fs\n// open are wh" + "at is open. BAD\nvar open []int",
			},
			good: map[string]string{
				"fs/a.go": "package fs\n// size is the number of bytes. It is wh" + "at stat shows.\nvar size int",
			},
		},
		"pronouns": {
			bad: map[string]string{
				"fs/a.go":      "package fs\n// The rank has hi" + "s own. // BAD",
				"fs/a_test.go": "package fs\nvar x = 1 // for wh" + "om it is BAD",
			},
			good: map[string]string{"fs/a.go": "package fs\n// The history of this.\nvar hi" + "s = 1"},
		},
		"methods": {
			bad: map[string]string{
				"fs/a.go": "package fs\ntype a[T any] struct{}\n" + strings.Repeat("func (*a[T]) _() {}\n", maxMethods),
				"fs/b.go": "package fs\nfunc (a[T]) _() {} // BAD",
			},
			good: map[string]string{
				"fs/a.go":       "package fs\ntype a struct{}\n" + strings.Repeat("func (*a) _() {}\n", maxMethods),
				"fs/a_test.go":  "package fs\nfunc (*a) _() {}",
				"metadata/a.go": "package metadata\ntype a struct{}\nfunc (*a) _() {}",
				"fs/b.go":       "package fs\ntype b struct{}\nfunc (*b) _() {}",
			},
		},
		"size": {
			bad: map[string]string{
				"fs/a.go":      "package fs\nfunc a() { // BAD\n" + long + "}",
				"fs/b_test.go": "package fs // BAD\n" + strings.Repeat("\n", maxFileLines),
			},
			good: map[string]string{
				"fs/a.go": "package fs\nfunc a() {\n// A remark.\n/* And\nanother. */\n" +
					strings.TrimPrefix(long, "\t_ = 1\n") + "}",
				"fs/a_test.go": "package fs\nfunc a() {\n" + long + "}",
			},
		},
		"named-tests": {
			bad: map[string]string{
				"SECURITY.md":    "`fs.TestGone` BAD\n`TestHere` without its folder BAD\n`fs/sub.TestHere` BAD\n`fs.TestCode` BAD",
				"fs/a_test.go":   "package fs\nfunc TestHere() {}",
				"fs/notatest.go": "package fs\nfunc TestCode() {}",
			},
			good: map[string]string{
				"SECURITY.md":      "`fs.TestHere`, `fs/sub.TestThere`, TestGone",
				"docs/a.md":        "`fs.TestGone`",
				"fs/a_test.go":     "package fs\nfunc TestHere() {}",
				"fs/sub/a_test.go": "package sub\nfunc TestThere() {}",
			},
		},
		"links": {
			bad: map[string]string{
				"docs/a.md": "[gone](gone.md) BAD\n[no such heading](b.md#none) BAD\n[nor here](#none) BAD\n![x](x.svg) BAD",
				"docs/b.md": "# Title\n```\n# none\n```\n",
			},
			good: map[string]string{
				"docs/a.md":     "# A, `b` and C-D\n[b](sub/b.md#title), [here](#a-b-and-c-d), [up](../README.md), [folder](sub), [web](https://a.b/c)\n```\n[x](gone.md)\n```",
				"docs/sub/b.md": "## Title\n[a](../a.md)",
				"README.md":     "[a](docs/a.md#a-b-and-c-d)",
			},
		},
		"machine-paths": {
			bad: map[string]string{
				"docs/a.md": "see /ro" + "ot/notes BAD\n(/ho" + "me/someone/src) BAD",
				"fs/a.go":   "package fs\nconst dir = \"/wo" + "rk/tree\" // BAD",
			},
			good: map[string]string{
				"docs/a.md":     "as root, $WORK/mnt, https://example.com/wo" + "rk/a and a/wo" + "rk/b, /mnt/hmc",
				"bin/notes.txt": "/ro" + "ot/notes",
			},
		},
	}
}

func TestRulesFindWhatTheyShould(t *testing.T) {
	all := examples()
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			e := all[rule.Name]
			found := places(t, rule, e.bad)
			if want := marked(e.bad); !slices.Equal(found, want) {
				t.Errorf("bad example: found %v, want %v", found, want)
			}
			if found := places(t, rule, e.good); len(found) != 0 {
				t.Errorf("good example: found %v", found)
			}
		})
	}
}

// places runs a rule on files and returns where it found something.
func places(t *testing.T, rule Rule, files map[string]string) []string {
	t.Helper()
	fsys := make(fstest.MapFS)
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(text, " // BAD\n\npackage", "\n\npackage"))}
	}
	tree, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, o := range sorted(rule.Check(tree)) {
		out = append(out, fmt.Sprintf("%s:%d", o.Path, o.Line))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// marked returns the lines that are marked as bad.
func marked(files map[string]string) []string {
	var out []string
	for name, text := range files {
		for i, line := range strings.Split(text, "\n") {
			if strings.Contains(line, "BAD") {
				out = append(out, fmt.Sprintf("%s:%d", name, i+1))
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestLoadLeavesOut(t *testing.T) {
	tree, err := Load(fstest.MapFS{
		".git/config":               {Data: []byte("x")},
		"bin/hmcfs":                 {Data: []byte("x")},
		"tests/tools/go.mod":        {Data: []byte("module x")},
		"tests/tools/tool.go":       {Data: []byte("package tools")},
		"fs/testdata/a.go":          {Data: []byte("not Go")},
		"fs/a.go":                   {Data: []byte("package fs")},
		"docs/picture":              {Data: []byte{0, 1}},
		"docs/a.md":                 {Data: []byte("text")},
		"tests/bin/kept-because.md": {Data: []byte("only the top bin is built into")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, x := range tree.Texts {
		texts = append(texts, x.Path)
	}
	want := []string{"docs/a.md", "fs/a.go", "fs/testdata/a.go", "tests/bin/kept-because.md"}
	if !slices.Equal(texts, want) || len(tree.Files) != 1 {
		t.Errorf("loaded %v and %d Go files", texts, len(tree.Files))
	}
}
