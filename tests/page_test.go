package tests

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// page checks the page of the mount: its data, what it refuses, and what a browser shows.
func (w *watched) page(t *testing.T) {
	s := w.session(t)
	w.move(t, s, 300)
	const odd = "<img src=x onerror=alert(1)>"
	create(t, w.Path("host", odd), 1, 1000)
	text, err := w.Run("page", w.Dir)
	must(t, err)
	address, token, _ := strings.Cut(strings.TrimSpace(text), "#")
	if st := w.Status(); address != "http://"+st.HTTP+"/" || len(token) < 26 {
		t.Fatalf("the address is %q, and the server is at %s", text, st.HTTP)
	}
	auth := []string{"Authorization", "Bearer " + token}
	get := func(path string, into any) {
		t.Helper()
		status, body := request(t, http.MethodGet, address+path, auth...)
		if status != http.StatusOK {
			t.Errorf("%s: status %d: %s", path, status, body)
			return
		}
		must(t, json.Unmarshal([]byte(body), into))
	}
	var status adminapi.Status
	if get("v1/status", &status); status.MountPoint != w.Dir || len(status.Devices) != 3 {
		t.Errorf("status %+v", status)
	}
	var activity adminapi.Activity
	if get("v1/activity", &activity); len(activity.Sessions) == 0 {
		t.Errorf("activity %+v", activity)
	}
	var graph struct{ Devices []struct{ ID string } }
	if get("v1/topology", &graph); len(graph.Devices) < 3 {
		t.Errorf("topology %+v", graph)
	}
	var listing adminapi.Listing
	if get("v1/listing?dir=host", &listing); len(listing.Entries) != 1 || listing.Entries[0].Name != odd || listing.Entries[0].Size != 1000 || listing.Entries[0].State != "live" {
		t.Errorf("listing %+v", listing)
	}
	w.pageRefuses(t, address, auth)
	w.pageEvents(t, address, auth)
	w.browse(t, address, token)
}

// pageRefuses checks that the page's server changes nothing, and hands out no bytes.
func (w *watched) pageRefuses(t *testing.T, address string, auth []string) {
	t.Helper()
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{http.MethodPost, "v1/umount", http.StatusNotFound},
		{http.MethodPost, "v1/session", http.StatusNotFound},
		{http.MethodGet, "v1/config", http.StatusNotFound},
		{http.MethodGet, "v1/page", http.StatusNotFound},
		{http.MethodGet, "v1/files/sim0/a", http.StatusNotFound},
		{http.MethodDelete, "v1/files/sim0/a", http.StatusNotFound},
		{http.MethodPost, "v1/status", http.StatusNotFound},
		{http.MethodGet, "v1/listing?dir=sim0/a", http.StatusBadRequest},
		{http.MethodGet, "v1/listing?dir=none", http.StatusNotFound},
		{http.MethodGet, "v1/listing?dir=../..", http.StatusBadRequest},
		{http.MethodGet, "metrics", http.StatusNotFound},
	} {
		if got, body := request(t, c.method, address+c.path, auth...); got != c.want {
			t.Errorf("%s %s: status %d, want %d: %s", c.method, c.path, got, c.want, body)
		}
	}
	for _, path := range []string{"v1/status", "v1/listing", "v1/events"} {
		if got, body := request(t, http.MethodGet, address+path); got != http.StatusUnauthorized {
			t.Errorf("%s without a token: status %d: %s", path, got, body)
		}
	}
}

// pageEvents reads the stream of events.
func (w *watched) pageEvents(t *testing.T, address string, auth []string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"v1/events", nil)
	must(t, err)
	r.Header.Set(auth[0], auth[1])
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	must(t, err)
	defer func() { _ = resp.Body.Close() }() // it never ends
	create(t, w.Path("sim0", "p"), 9, 1000)
	must(t, os.Rename(w.Path("sim0", "p"), w.Path("publish", "watched")))
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || !strings.Contains(line, `"event":"published"`) || !strings.Contains(line, `"key":"watched"`) {
		t.Errorf("event %q, %v", line, err)
	}
	// To look is not to receive.
	status, body := request(t, http.MethodGet, address+"v1/listing?dir=publish", auth...)
	if _, err = os.Stat(w.Path("publish", "watched")); err != nil || !strings.Contains(body, `"watched"`) || !strings.Contains(body, `"size":1000`) {
		t.Errorf("publish/ was listed: status %d, %s; then %v", status, body, err)
	}
}

// browse has Chromium draw the page, if it is there, once with the token and once without.
func (w *watched) browse(t *testing.T, address, token string) {
	t.Helper()
	if kit.Missing("tool:chromium") != nil {
		return
	}
	draw := func(url string) string {
		t.Helper()
		cmd := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--user-data-dir="+mnt.TempDir(t),
			"--virtual-time-budget=5000", "--dump-dom", url)
		out, err := cmd.Output()
		must(t, err)
		return string(out)
	}
	dom := draw(address + "#" + token)
	for _, want := range []string{w.Dir, "live, ", "<b>sim0</b>", "publish/", ">connected<", ">watched<", "numa0", "1.0 MiB of 64.0 MiB", ">session<"} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page lacks %q:\n%s", want, dom)
		}
	}
	if strings.Contains(dom, token) {
		t.Error("the token stands in the page")
	}
	if dom := draw(address); !strings.Contains(dom, "no valid token") || strings.Contains(dom, "sim0") {
		t.Errorf("without a token:\n%s", dom)
	}
}
