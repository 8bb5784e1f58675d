package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake writes a program in place of govulncheck, which prints its arguments.
func fake(t *testing.T, status int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "govulncheck")
	if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\necho ran \"$@\"\nexit %d\n", status), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return path
}

// database answers as vuln.go.dev does, or with something else.
func database(t *testing.T, status int, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/index/db.json" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // the program may be gone
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const index = `{"modified":"2026-01-02T03:04:05Z"}`

// TestAnswered has the status of govulncheck be the program's.
func TestAnswered(t *testing.T) {
	for _, tc := range []struct{ status, want int }{{0, clean}, {found, found}, {1, failed}, {2, failed}} {
		var out strings.Builder
		db := database(t, http.StatusOK, index)
		got := start([]string{"-optional", "-db", db, "-govulncheck", fake(t, tc.status), "./x"}, &out)
		if got != tc.want || !strings.Contains(out.String(), "ran -db "+db+" -test ./x\n") {
			t.Errorf("govulncheck ends with %d: status %d, want %d; it prints\n%s", tc.status, got, tc.want, out.String())
		}
		if says := strings.Contains(out.String(), "NOT CHECKED"); says != (tc.want == failed) {
			t.Errorf("govulncheck ends with %d: it prints\n%s", tc.status, out.String())
		}
	}
}

// TestNotAnswered has a database that is not there, is silent, or is something
// else: nothing is checked, that is said, and it is no failure with -optional
// alone.
func TestNotAnswered(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }() // nothing is written
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, db := range map[string]string{
		"not there":     gone.URL,
		"no name":       "http://vuln.invalid",
		"silent":        "http://" + silent.Addr().String(),
		"another page":  database(t, http.StatusOK, "<html>Log in to this network</html>"),
		"another index": database(t, http.StatusOK, "{}"),
		"refusal":       database(t, http.StatusForbidden, index),
	} {
		for _, optional := range []bool{false, true} {
			var out strings.Builder
			got := start([]string{fmt.Sprintf("-optional=%t", optional), "-db", db, "-wait", "200ms", "-govulncheck", fake(t, 0)}, &out)
			if want := map[bool]int{true: clean, false: failed}[optional]; got != want {
				t.Errorf("%s, optional %t: status %d, want %d", name, optional, got, want)
			}
			if !strings.HasPrefix(out.String(), "NOT CHECKED for known vulnerabilities: ") || strings.Contains(out.String(), "ran ") {
				t.Errorf("%s, optional %t: it prints\n%s", name, optional, out.String())
			}
		}
	}
}

// TestNoTool has govulncheck missing, which is a failure also with -optional.
func TestNoTool(t *testing.T) {
	var out strings.Builder
	got := start([]string{"-optional", "-db", database(t, http.StatusOK, index), "-govulncheck", filepath.Join(t.TempDir(), "none")}, &out)
	if got != failed || !strings.HasPrefix(out.String(), "NOT CHECKED") {
		t.Errorf("status %d, want %d; it prints\n%s", got, failed, out.String())
	}
}
