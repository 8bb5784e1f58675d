package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestUpToDate compares the file with the modules that are linked into the binary.
func TestUpToDate(t *testing.T) {
	root := filepath.Join("..", "..")
	want, err := Notices(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "THIRD_PARTY_NOTICES"))
	if err != nil {
		t.Fatal(err)
	}
	if at := kit.FirstDiff(got, []byte(want)); at >= 0 {
		t.Errorf("THIRD_PARTY_NOTICES is out of date from line %d on; run make notices", 1+strings.Count(want[:min(at, len(want))], "\n"))
	}
}

// TestClassify checks that each licence is recognized, and that other texts are refused.
func TestClassify(t *testing.T) {
	for _, l := range known() {
		text := "Copyright\n" + strings.ReplaceAll(l.words, " ", "\n ")
		if got, err := classify([]string{text}); err != nil || len(got) != 1 || got[0] != l.name {
			t.Errorf("%s is taken for %q, %v", l.name, got, err)
		}
	}
	both := known()[5].words + ". Neither the name of the authors"
	if got, err := classify([]string{both}); err != nil || len(got) != 1 || got[0] != "BSD-3-Clause" {
		t.Errorf("BSD-3-Clause is taken for %q, %v", got, err)
	}
	for _, texts := range [][]string{nil, {"GNU GENERAL PUBLIC LICENSE Version 3"}, {"All rights reserved."}} {
		if got, err := classify(texts); err == nil {
			t.Errorf("%q is taken for %q", texts, got)
		}
	}
}

// TestLicenceTexts checks that licences are found in the folders of the linked packages, and
// above.
func TestLicenceTexts(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE": "one\r\n", "a/LICENSE.txt": "two  \n\n", "a/b/COPYING": "one\n", "c/LICENSE": "not linked", "a/license.go": "package a", "a/NOTICE": "three",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := licenceTexts(root, []string{filepath.Join(root, "a", "b")})
	if want := "one|two|three"; err != nil || strings.Join(got, "|") != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
