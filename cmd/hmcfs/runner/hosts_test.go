package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseHosts(t *testing.T) {
	got, err := ParseHosts("a:2, user@b ,[fd00::1]:3,fd00::2,[fd00::3],10.0.0.1:64")
	want := []Place{
		{Name: "a", Slots: 2},
		{Name: "user@b", Slots: 1},
		{Name: "fd00::1", Slots: 3},
		{Name: "fd00::2", Slots: 1},
		{Name: "fd00::3", Slots: 1},
		{Name: "10.0.0.1", Slots: 64},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for text, fault := range map[string]string{
		"":                 `host "": not a host name`,
		"a,,b":             `host "": not a host name`,
		"a:0":              `host "a": "0" ranks; use 1 to 64`,
		"a:65":             `host "a": "65" ranks; use 1 to 64`,
		"a:x":              `host "a": "x" ranks`,
		"-oProxyCommand=x": `not a host name`,
		"a b":              `not a host name`,
		"a;reboot":         `not a host name`,
		"$(x)":             `not a host name`,
		"[fd00::1":         `use [IPv6]:RANKS`,
		"[fd00::1]x":       `use [IPv6]:RANKS`,
		"a:1,b,a":          `host "a" is listed twice; give it more ranks instead: a:2`,
	} {
		if _, err := ParseHosts(text); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%q: %v, want %q", text, err, fault)
		}
	}
}

func TestReadHosts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	read := func(text string) ([]Place, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadHosts(file)
	}
	got, err := read("# two machines\na slots=2 address=10.0.0.1\n\nb:3   # the other\n")
	want := []Place{{Name: "a", Slots: 2, Address: "10.0.0.1"}, {Name: "b", Slots: 3}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	_, err = read("a slots=0\nb address=here\nc colour=red\nd address=0.0.0.0\n")
	for _, fault := range []string{`hosts:1: "0" ranks`, `hosts:2: `, `hosts:3: "colour=red": use slots=N and address=IP`, "hosts:4: address 0.0.0.0: other hosts can't connect to it"} {
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%v, want %q", err, fault)
		}
	}
	if _, err = read("# none\n"); err == nil || !strings.Contains(err.Error(), "no hosts") {
		t.Error(err)
	}
}

// TestParts assigns ranks to hosts, as many to each as it has slots.
func TestParts(t *testing.T) {
	places := []Place{{Name: "a", Slots: 2}, {Name: "b", Slots: 3}, {Name: "c", Slots: 1}}
	for ranks, want := range map[int][]int{0: {2, 3, 1}, 6: {2, 3, 1}, 5: {2, 3}, 4: {2, 2}, 2: {2}, 1: {1}} {
		p, err := NewPlan(Options{Hosts: places, Ranks: ranks, Program: []string{"x"}, Agent: []string{"a"}, RemoteCommand: []string{"r"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		first := 0
		for i, part := range p.parts() {
			if part.first != first || part.count != want[i] || part.Name != places[i].Name {
				t.Errorf("%d ranks: %+v", ranks, p.parts())
			}
			first += part.count
		}
		if first != p.Ranks {
			t.Errorf("%d ranks: %+v", ranks, p.parts())
		}
	}
	for want, o := range map[string]Options{
		"nranks 7: the hosts have room for 6": {Hosts: places, Ranks: 7, Agent: []string{"a"}, RemoteCommand: []string{"r"}},
		"transport shm: ranks on several":     {Hosts: places, Transport: "shm", Agent: []string{"a"}, RemoteCommand: []string{"r"}},
		"agent: there is none":                {Hosts: places},
	} {
		o.Program = []string{"x"}
		if _, err := NewPlan(o, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
