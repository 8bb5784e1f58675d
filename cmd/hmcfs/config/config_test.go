package config_test

import (
	"encoding/json"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/devices"
	fsys "github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/transport"
)

// reader serves files from a map.
func reader(files map[string]string) func(string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		text, ok := files[path]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return []byte(text), nil
	}
}

func environment(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

func TestDefaultsAreThoseOfTheLayers(t *testing.T) {
	s, err := config.Resolve(config.Inputs{})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Options{
		Passthrough: "auto", ReadAhead: fsys.DefaultReadAhead, MaxWrite: fsys.DefaultMaxWrite,
		MaxBackground: fsys.DefaultMaxBackground, CacheTimeout: fsys.DefaultCacheTimeout,
		ChunkSize: transport.DefaultChunkSize, Slots: transport.DefaultSlots, MaxPinned: transport.DefaultMaxPinned,
		Reserve: badgerkv.DefaultReserve, MaxRegistered: transport.DefaultMaxRegistered, RegisterFrom: transport.DefaultRegisterFrom,
		LogLevel: "info", NUMA: "auto", Squash: "root", Lease: 10 * time.Second, NodeTimeout: 10 * time.Second,
	}
	got, _ := json.Marshal(s.Options)
	wanted, _ := json.Marshal(want)
	if string(got) != string(wanted) {
		t.Errorf("defaults\n got %s\nwant %s", got, wanted)
	}
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range config.Table() {
		if seen[p.Name] {
			t.Errorf("%s stands twice in the table", p.Name)
		}
		seen[p.Name] = true
		if !strings.HasSuffix(p.Doc, ".") && !strings.HasSuffix(p.Doc, "quotes).") {
			t.Errorf("%s: its text ends without a full stop: %q", p.Name, p.Doc)
		}
		if strings.Contains(p.Key(), "-") || p.Env() != "HMCFS_"+strings.ToUpper(p.Key()) {
			t.Errorf("%s: key %q, environment %q", p.Name, p.Key(), p.Env())
		}
	}
}

func TestStrongestSourceWins(t *testing.T) {
	const system, user = "/etc/hmcfs/config.yaml", "/user/.config/hmcfs/config.yaml"
	files := reader(map[string]string{
		system: "read_ahead: 1MiB\nslots: 5\nmax_background: 10\nallow_other: true\ndevice: sim:0\n",
		user:   "# mine\nslots: 6\nmax_background: 11\ndevice:\n  - sim:1,size=1GiB\n  - host\n",
	})
	env := map[string]string{"HMCFS_MAX_BACKGROUND": "12", "HOME": "/user", "HMCFS_CACHE_TIMEOUT": "2s"}
	s, err := config.Resolve(config.Inputs{
		Files: config.Files("", environment(env)), Getenv: environment(env), ReadFile: files,
		Flags: map[string][]config.Given{
			"cache-timeout": {{Text: "3s", Source: "flag --cache-timeout"}},
			"option":        {{Text: `ro,state_dir=/s,device="sim:2,size=1GiB",keep`, Source: "flag -o"}},
			"device":        {{Text: "sim:3", Source: "flag --device"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, l := range s.List {
		got[l.Option.Name] = l.Option.Show(&s.Options) + " from " + l.Source
	}
	for name, want := range map[string]string{
		"read-ahead":     "1MiB from config file " + system + " line 1",
		"slots":          "6 from config file " + user + " line 2",
		"max-background": "12 from environment HMCFS_MAX_BACKGROUND",
		"cache-timeout":  "3s from flag --cache-timeout",
		"allow-other":    "true from config file " + system + " line 4",
		"device":         "sim:3 sim:2,size=1GiB from flag -o",
		"option":         "ro from flag -o",
		"state-dir":      "/s from flag -o",
		"keep":           "true from flag -o",
		"passthrough":    "auto from default",
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
	if !s.ReadOnly() || s.CacheTimeout != 3*time.Second || s.ReadAhead != devices.MiB {
		t.Errorf("values: %+v", s.Options)
	}
}

func TestListsOfTheEnvironment(t *testing.T) {
	env := map[string]string{"HMCFS_DEVICE": "host,size=1GiB;sim:0  sim:1,latency=5us", "HMCFS_OPTION": "ro,nosuid noexec"}
	s, err := config.Resolve(config.Inputs{Getenv: environment(env)})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"host,size=1GiB", "sim:0", "sim:1,latency=5us"}; !slices.Equal(s.Devices, want) {
		t.Errorf("devices %q, want %q", s.Devices, want)
	}
	if want := []string{"ro", "nosuid", "noexec"}; !slices.Equal(s.MountOptions, want) {
		t.Errorf("options %q, want %q", s.MountOptions, want)
	}
}

func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		env   map[string]string
		flags map[string]string
		want  []string
	}{
		"unknown keys": {
			file: "read_ahed: 1MiB\nslots: 4\nbandwidth: 3\n",
			want: []string{
				`config file /c line 1: unknown key "read_ahed" (did you mean "read_ahead"?)`,
				`config file /c line 3: unknown key "bandwidth"`,
			},
		},
		"all sources at once": {
			file: "slots: many\n", env: map[string]string{"HMCFS_KEEP": "perhaps"},
			flags: map[string]string{"read-ahead": "3q", "passthrough": "of", "device": "smi:0", "option": "state_dir=here"},
			want: []string{
				`config file /c line 1: slots: "many" is not a whole number`,
				`environment HMCFS_KEEP: keep: "perhaps" is neither true nor false`,
				`flag --read-ahead: read-ahead: size "3q": unknown unit "q"`,
				`passthrough: "of" is unknown; use auto, off (did you mean "off"?)`,
				`device "smi:0": unknown family "smi"; use one of host, sim (did you mean "sim"?)`,
				`state-dir: "here" is not an absolute path`,
			},
		},
		"one value only":    {file: "slots: [3, 4]\n", want: []string{"config file /c line 1: slots: takes one value"}},
		"a map":             {file: "slots: {a: 3}\n", want: []string{"is neither a plain value nor a list"}},
		"no value":          {file: "slots:\n", want: []string{"slots: has no value"}},
		"not a map":         {file: "- slots\n", want: []string{"config file /c line 1: not a list of key: value"}},
		"not YAML":          {file: "a: [\n", want: []string{"config file /c: "}},
		"bounds":            {flags: map[string]string{"slots": "99", "chunk-size": "1000", "max-write": "3"}, want: []string{"99 slots", "chunk size 1000", "max-write: 3 bytes"}},
		"mount options":     {flags: map[string]string{"option": "rw,nosuidd,state_dir"}, want: []string{`unknown mount option "nosuidd" (did you mean "nosuid"?)`, "state_dir needs a value"}},
		"quote in -o":       {flags: map[string]string{"option": `device="sim:0`}, want: []string{"a double quote is not closed"}},
		"device parameters": {flags: map[string]string{"device": "sim:x"}, want: []string{`"x" is not a device number`}},
	} {
		t.Run(name, func(t *testing.T) {
			in := config.Inputs{
				Files: []config.File{{Path: "/c"}}, ReadFile: reader(map[string]string{"/c": c.file}),
				Getenv: environment(c.env), Flags: map[string][]config.Given{}, Families: []config.Family{{Name: "host"}, {Name: "sim", Params: []config.Param{{Name: "size", Kind: config.ParamSize}}}},
			}
			for k, v := range c.flags {
				in.Flags[k] = []config.Given{{Text: v, Source: "flag --" + k}}
			}
			_, err := config.Resolve(in)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
			if lines := strings.Count(err.Error(), "\n") + 1; lines != len(c.want) {
				t.Errorf("%d lines, want %d:\n%v", lines, len(c.want), err)
			}
		})
	}
}

// TestRelativePath takes a path of a flag as one below the working directory, and no other.
func TestRelativePath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	given := func(text string) []config.Given { return []config.Given{{Text: text, Source: "flag"}} }
	s, err := config.Resolve(config.Inputs{Flags: map[string][]config.Given{
		"state-dir": given("here"), "runtime-dir": given("../r"), "log-file": given("/l"), "access-log": given("./a"), "topology": given("t"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		s.StateDir: dir + "/here", s.RuntimeDir: filepath.Dir(dir) + "/r", s.LogFile: "/l", s.AccessLog: dir + "/a", s.Topology: dir + "/t",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	s, err = config.Resolve(config.Inputs{Flags: map[string][]config.Given{"state-dir": given("here"), "option": given("state_dir=/later")}})
	if err != nil || s.StateDir != "/later" {
		t.Fatalf("a mount option beside the flag: %v", err)
	}
	_, err = config.Resolve(config.Inputs{Getenv: environment(map[string]string{"HMCFS_STATE_DIR": "here"})})
	if err == nil || !strings.Contains(err.Error(), "is not an absolute path") {
		t.Errorf("the environment: %v", err)
	}
}

// TestTimesOfNoCluster checks the times of a cluster also without one.
func TestTimesOfNoCluster(t *testing.T) {
	_, err := config.Resolve(config.Inputs{Getenv: environment(map[string]string{"HMCFS_LEASE": "99999h", "HMCFS_NODE_TIMEOUT": "1ns"})})
	if err == nil || !strings.Contains(err.Error(), "lease: ") || !strings.Contains(err.Error(), "node-timeout: ") {
		t.Errorf("%v", err)
	}
}

func TestNamedFileMustBeThere(t *testing.T) {
	_, err := config.Resolve(config.Inputs{
		Files: config.Files("/gone.yaml", environment(nil)), ReadFile: reader(nil),
	})
	if err == nil || !strings.Contains(err.Error(), "config file /gone.yaml: no such file") {
		t.Errorf("error %v", err)
	}
}

func TestWordsForMountItselfAreIgnored(t *testing.T) {
	s, err := config.Resolve(config.Inputs{Flags: map[string][]config.Given{
		"option": {{Text: "defaults,noauto,x-systemd.automount,_netdev,nofail,ro", Source: "flag -o"}},
	}})
	if err != nil || !slices.Equal(s.MountOptions, []string{"ro"}) {
		t.Errorf("options %q, error %v", s.MountOptions, err)
	}
}

func TestNearest(t *testing.T) {
	for written, want := range map[string]string{"slot": "slots", "xyz": "", "sltos": "slots", "": ""} {
		if got := config.Nearest(written, []string{"slots", "device"}); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", written, got, want)
		}
	}
}
