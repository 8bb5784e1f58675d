package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/env"
)

func update() bool { return flag.Lookup("update").Value.String() == "true" }

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the golden files and the generated documents anew")
	flag.Parse()
	os.Exit(m.Run())
}

// result is the result of one execution of the command line.
type result struct {
	code        int
	out, errors string
}

// run runs the command line in this process, with no environment.
func run(t *testing.T, args ...string) result {
	t.Helper()
	return runIn(t, map[string]string{"HMCFS_CONFIG": emptyConfig(t), "HOME": t.TempDir()}, args...)
}

// emptyConfig keeps a test from reading the machine's config file.
func emptyConfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func runIn(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := Run(t.Context(), Env{
		Args: append([]string{"hmcfs"}, args...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Getenv: func(name string) string { return env[name] }, UID: os.Geteuid(),
	})
	return result{code, out.String(), errs.String()}
}

// golden compares a text with a file in testdata, or writes it.
func golden(t *testing.T, path, text string) {
	t.Helper()
	if update() {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s differs; if that is meant, write it anew: go test ./cmd/hmcfs/cli -update\n--- got\n%s", path, text)
	}
}

func TestGeneratedDocumentsAreFresh(t *testing.T) {
	golden(t, filepath.FromSlash("../../../docs/cli.md"), run(t, "docs", "cli").out)
	golden(t, filepath.FromSlash("../../../docs/config.md"), run(t, "docs", "config").out)
}

// TestFaults compares the error messages for mistakes of the user with a golden file.
func TestFaults(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("slots: 4\nread_ahed: 1MiB\nkeeps: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, args := range [][]string{
		{"mout", "/mnt"},
		{"mount"},
		{"mount", "--nope", "/mnt"},
		{"mount", "--devices", "sim:0", "/mnt"},
		{"mount", ""},
		{"mount", "--device", "smi:0", "--slots", "99", "--read-ahead", "3q", dir},
		{"mount", "--device", "sim:0,size", dir},
		{"mount", "--device", "sim:1,sise=3", dir},
		{"mount", "--device", "sim:1,size=3q,mapped=maybe,flavour=sweet", dir},
		{"mount", "--device", "opencl:0,map=of", dir},
		{"mount", "--device", "sim:0", "--device", "sim,size=1MiB", dir},
		{"mount", "-o", "ro,devize=sim:0", dir},
		{"mount", "-o", "device=sim:0,mapped=true,size=1GiB,ro", dir},
		{"mount", "-o", "size=1GiB,device=sim:0", dir},
		{"mount", "--device", "gpu:0", dir},
		{"mount", "--device", "sim0", "--device", "sim:0", dir},
		{"mount", "-o", "device=oclx", dir},
		{"mount", "--config", bad, dir},
		{"mount", "--config", filepath.Join(dir, "none.yaml"), dir},
		{"mount", filepath.Join(dir, "none")},
		{"mount", file},
		{"mount", dir},
		{"mount", "/proc"},
		{"serve"},
		{"serve", "--passthrough", "off", dir},
		{"serve", "-o", "ro", dir},
		{"serve", file},
		{"serve", "/proc"},
		{"cp", "-", "--json", "-"},
		{"ls", "--mount", dir, "hmc:"},
		{"mv", "a", "b"},
		{"umount"},
		{"umount", dir},
		{"umount", "/proc"},
		{"mount", "--cluster", "etcd://h:2379", "--listen", "h:1", dir},
		{"mount", "--node", "a", dir},
		{"mount", "--node", "-a", "--cluster", "http://h:2379", "--listen", ":7070", "--squash", "some", "--lease", "1s", "--secret-file", file, dir},
		{
			"mount", "--node", "a", "--cluster", "etcd://u:p@h:2379", "--peer", "a=h:1", "--peer", "b", "--peer", "c=:7", "--peer", "d=0.0.0.0:7", "--listen", "h:0",
			"--tls-cert", file, "--etcd-key", file, "--etcd-user", "u", "--transport", "smh", "--squash", "all=x", "--node-timeout", "0s", dir,
		},
		{"mount", "--node", "a", "--peer", "b=h:1", "--listen", "h:1", "--secret-file", file, "--squash", "none=3", dir},
		{"mount", "--node", "a", "--peer", "b=h:1", "--listen", "h:1", "--secret-file", file, dir},
		{"mount", "--node", "a", "--peer", "b=h:1", "--listen", "h:1", "--secret-file", filepath.Join(dir, "none"), dir},
		{"mount", "--node", "a", "--peer", "b=h:1", "--listen", "h:1", "--tls-cert", file, "--tls-key", file, "--tls-ca", file, dir},
		{"nodes", dir},
		{"nodes", dir, dir},
		{"status", dir},
		{"status", "--json", dir},
		{"stat", file},
		{"stat", filepath.Join(dir, "none")},
		{"fsck", "--state-dir", dir, dir},
		{"fsck", "--state-dir", dir},
		{"fsck", dir},
		{"cp", file},
		{"cp", file, file},
		{"cp", file, file, filepath.Join(dir, "none")},
		{"cp", dir, filepath.Join(dir, "x")},
		{"bench", dir},
		{"bench", "--size", "3q", dir},
		{"cp", file, filepath.Join(dir, "none") + "/"},
		{"config", "shw"},
		{"config", "show", "--cache-timeout", "soon"},
		{"devices", "all"},
		{"docs", "all"},
		{"bind"},
		{"bind", file},
		{"bind", "--path", file, "--memfd", "3", file},
		{"bind", "--memfd", "3", file},
		{"bind", "--memfd", "3", "--pid", "-1", file},
		{"bind", "--ipc", "00ff", "--pid", "1", file},
		{"bind", "--vmm-fd", "3", "--pid", "1", file},
		{"bind", "--path", file, "--offset", "3q", file},
		{"bind", "--path", file, "--offset", "9", file},
		{"bind", "--path", filepath.Join(dir, "none"), file},
		{"bind", "--handle", `{"pieces":[{"kind":"memfd","path":"none"}]}`, file},
		{"bind", "--memfd", "-3", "--pid", "1", file},
		{"bind", "--handle", `{"famly":"sim"}`, file},
		{"bind", "--handle", "@" + filepath.Join(dir, "none"), file},
		{"bind", "--handle", "-", file},
		{"bind", "--handle", `{"pieces":[{"kind":"memfd","fd":3}]}`, file},
		{"bind", "--handle", `{}`, "--size", "3", file},
		{"bind", "--memfd", "3", "--pid", "4194305", file},
		{"bind", "--path", file, file},
		{"export"},
		{"export", file},
		{"export", file, file},
		{"export", file, "--"},
		{"export", "--end", "--pid", "3", file},
		{"export", "--pid", "-3", file},
		{"export", "--json", file, "--", "true"},
		{"export", filepath.Join(dir, "none")},
		{"publish"},
		{"publish", "k"},
		{"publish", "k="},
		{"publish", "a/b=c"},
		{"publish", "a=x", "a=y"},
		{"publish", "--timeout", "3s", "k=" + file},
		{"publish", "--wait", "--timeout", "soon", "k=" + file},
		{"publish", "--mount", dir, "k=" + file},
		{"publish", "-k=" + file},
		{"publish", "-"},
		{"subscribe"},
		{"subscribe", "--json", "k"},
		{"subscribe", "--json", "k=-"},
		{"subscribe", "--dir", filepath.Join(dir, "none"), "k"},
		{"subscribe", "--timeout", "31m", "k"},
		{"mset", "k"},
		{"mset", "ä=" + file},
		{"mget", "--offset", "3q", "k"},
		{"mget", "--length", "0", "k"},
		{"mget", "--timeout", "31m", "k"},
		{"d2h", "k"},
		{"d2h", "--existing", "maybe", "k=" + file},
		{"d2h", "--ttl", "1500ms", "k=" + file},
		{"d2h", "--blobs", "4,0", "k=" + file},
		{"h2d", "k"},
		{"exist"},
		{"exist", "a", "b", "a"},
		{"exist", "a", ""},
		{"exist", "--mount", dir, "k"},
		{"wait", "--timeout", "31m", "k"},
		{"del", "."},
		{"del", "-", "-"},
		{"expire", "k"},
		{"expire", "--ttl", "1.5s", "k"},
		{"expire", "--ttl", "1.5", "k"},
		{"ls-keys", "a", "b"},
		{"watch", "--event", "creatd"},
		{"watch", "--count", "-1"},
		{"watch", "--mount", dir},
	} {
		r := run(t, args...)
		text := strings.ReplaceAll("$ hmcfs "+strings.Join(args, " ")+"\n"+r.out+r.errors, dir, "DIR")
		b.WriteString(text + "exit " + string(rune('0'+r.code)) + "\n\n")
		if r.code == 0 || r.out != "" {
			t.Errorf("%v: exit code %d, output %q", args, r.code, r.out)
		}
	}
	golden(t, "testdata/faults.txt", b.String())
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("something was left in the directory: %v, %v", left, err)
	}
}

func TestConfigShow(t *testing.T) {
	vars := map[string]string{
		"HMCFS_CONFIG": emptyConfig(t), "HMCFS_SLOTS": "7",
		"HMCFS_ALGO": "allreduce=ring", "HCCL_BUFFSIZE": "16", "HCCL_RDMA_TC": "128",
	}
	r := runIn(t, vars, "config", "show", "--keep", "--read-ahead", "2M")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	golden(t, "testdata/config_show.txt", r.out)
	r = runIn(t, vars, "config", "show", "--json")
	var rows []adminapi.Setting
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil || len(rows) != len(config.Table())+len(env.Knobs()) {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	vars["HCCL_BUFFSIZE"] = "0"
	r = runIn(t, vars, "config", "show")
	if want := "EI0001: Value 0 for environment variable HCCL_BUFFSIZE is invalid."; r.code != 2 || !strings.Contains(r.errors, want) {
		t.Errorf("a wrong variable: %+v", r)
	}
}

// TestCollectiveVariables: an invalid algorithm is reported before any file is opened,
// whatever its source.
func TestCollectiveVariables(t *testing.T) {
	for _, x := range []struct {
		vars map[string]string
		args []string
		want string
	}{
		{nil, []string{"allreduce", "--algorithm", "rings", "/nowhere"}, `--algorithm: "rings" is unknown`},
		{map[string]string{"HCCL_ALGO": "level1:rings"}, []string{"broadcast", "/nowhere"}, "EI0001: Value level1:rings for"},
	} {
		r := runIn(t, x.vars, x.args...)
		if r.code != exitUsage || !strings.Contains(r.errors, x.want) {
			t.Errorf("%v %v: %+v", x.vars, x.args, r)
		}
	}
}

func TestEveryOptionIsAFlagOfMount(t *testing.T) {
	help := run(t, "mount", "--help").out
	for _, p := range config.Table() {
		if !strings.Contains(help, "--"+p.Name) {
			t.Errorf("mount has no --%s", p.Name)
		}
	}
}

// TestCompletionOfKinds checks the completion of flag values.
func TestCompletionOfKinds(t *testing.T) {
	for flag, want := range map[string]string{"--kind": "ipc\nvmm-fd\nmemfd\n", "--family": "host\n"} {
		verb := map[string]string{"--kind": "export", "--family": "bind"}[flag]
		if r := run(t, "__complete", verb, flag, ""); r.code != 0 || !strings.HasPrefix(r.out, want) {
			t.Errorf("%s %s: %+v", verb, flag, r)
		}
	}
}

func TestVersion(t *testing.T) {
	if r := run(t, "version"); r.code != 0 || !regexp.MustCompile(`^hmcfs \S+ \(go\S+, linux/\w+\)\n$`).MatchString(r.out) {
		t.Errorf("%+v", r)
	}
	if a, b := run(t, "--version"), run(t, "version"); a != b {
		t.Errorf("--version says %+v, version %+v", a, b)
	}
	var v adminapi.Version
	if r := run(t, "version", "--json"); json.Unmarshal([]byte(r.out), &v) != nil || v.Version != version() {
		t.Errorf("%+v", r)
	}
}

func TestDevicesTellWhyThereAreNone(t *testing.T) {
	var rows []familyRow
	r := run(t, "devices", "--json")
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil || r.code != 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	for _, row := range rows {
		if (len(row.Devices) == 0) == (row.Reason == "") {
			t.Errorf("%s: %d devices, reason %q", row.Family, len(row.Devices), row.Reason)
		}
	}
	if rows[0].Family != "host" || len(rows[0].Devices) != 1 || rows[0].Devices[0].Spec != "host" {
		t.Errorf("the host is not there: %+v", rows[0])
	}
}

func TestManPagesAndCompletions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	if r := run(t, "docs", "man", dir); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	page := func(name, begins string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.HasPrefix(string(text), begins) {
			t.Errorf("%s: %.40s, %v", name, text, err)
		}
		return string(text)
	}
	page("man1/hmcfs-mount.1", ".TH HMCFS")
	page("man1/hmcfs-config-show.1", ".TH HMCFS")
	program, helper := page("man1/hmcfs.1", ".TH HMCFS"), page("man8/mount.hmcfs.8", ".TH MOUNT.HMCFS 8")
	root := (&app{}).root()
	for _, c := range commands(root)[1:] {
		if !strings.Contains(program, ".TP\n.B "+roff(c.CommandPath())+"\n") {
			t.Errorf("hmcfs(1) lacks %s", c.CommandPath())
		}
	}
	for _, row := range exitCodes() {
		if !strings.Contains(program, ".B "+row.Codes+"\n") {
			t.Errorf("hmcfs(1) lacks the exit code %s", row.Codes)
		}
	}
	for _, option := range config.Table() {
		if !strings.Contains(helper, ".B "+roff(option.Key())) {
			t.Errorf("mount.hmcfs(8) lacks %s", option.Key())
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := run(t, "completion", shell); r.code != 0 || !strings.Contains(r.out, "hmcfs") {
			t.Errorf("%s: exit code %d", shell, r.code)
		}
	}
}

func TestPrintStatus(t *testing.T) {
	n := 3
	var b bytes.Buffer
	err := printStatus(&b, adminapi.Status{
		Version: "v1", PID: 42, UID: 1000, UptimeSeconds: 3725, MountPoint: "/mnt/hmc", StateDir: "/s", RuntimeDir: "/r",
		Socket: "/r/admin.sock", LogFile: "/s/hmcfs.log", AllowOther: true, ReadOnly: true,
		Passthrough: adminapi.Passthrough{Reason: "needs CAP_SYS_ADMIN"},
		Continued:   &adminapi.Continued{Objects: 3, Bytes: devices.MiB, Freed: 4 * devices.KiB},
		Devices: []adminapi.Device{
			{Name: "host", Model: "pinned host memory", Total: 4 * devices.GiB, Used: devices.MiB, Free: 4*devices.GiB - devices.MiB, Objects: &n, Bound: new(int), Lost: new(int)},
			{Name: "sim0", Total: devices.GiB, Free: devices.GiB, Held: devices.MiB, InDaemon: true},
			{Name: "ocl0", Total: devices.GiB, Free: devices.GiB, Held: 2 * devices.GiB},
			{Name: "ocl1", Total: devices.GiB, Free: devices.GiB, InDaemon: true},
		},
		Memory: adminapi.Memory{Resident: 88 * devices.MiB, Devices: devices.MiB, Heap: 25 * devices.MiB, Pinned: devices.MiB, Goroutines: 24, Files: 23},
		Paths:  []transport.PathStats{{Path: "h2d", Device: "sim0", Operations: 2, Bytes: 1 << 30, Seconds: 0.5}},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/status.txt", b.String())
}

// labCluster is the state of a cluster as the admin socket reports it.
func labCluster() adminapi.Cluster {
	return adminapi.Cluster{
		Name: "lab", Squash: "root", Listening: []string{"tcp:10.0.0.1:7070"},
		Self: members.Record{
			Name: "a", Addresses: []string{"10.0.0.1:7070"}, Epoch: 7, Version: "v1",
			Devices: []members.Device{{Name: "host", Total: 4 << 30}, {Name: "ocl0", Total: 2 << 30}},
		},
		State: members.State{Backend: "etcd", Endpoints: []string{"h1:2379", "h2:2379"}},
		Nodes: []members.Peer{
			{Record: members.Record{Name: "b", Addresses: []string{"10.0.0.2:7070", "unix:/b"}, Epoch: 8, Version: "v1"}, Connected: true, Transport: "tcp", Protection: "secret"},
			{Record: members.Record{Name: "c", Addresses: []string{"10.0.0.3:7070"}}, Problem: "10.0.0.3:7070: connection refused"},
			{Record: members.Record{Name: "d", Addresses: []string{"10.0.0.4:7070"}, Epoch: 9}},
			{
				Record: members.Record{Name: "e", Addresses: []string{"10.0.0.5:7070", "unix:/e"}},
				Problem: "unix:/e: rank 5: is the secret the same?: control: not authenticated\n" +
					"tcp:10.0.0.5:7070: rank 5: is the secret the same?: control: not authenticated",
			},
		},
		Traffic: members.Traffic{Questions: 12, Answers: 34, Failures: 1, BytesIn: 1 << 30, BytesOut: 4096},
	}
}

// TestShortProblem checks that only the reason is returned, in one line that fits.
func TestShortProblem(t *testing.T) {
	for text, want := range map[string]string{
		"connect: node b: tcp:10.0.0.2:7070: dial tcp 10.0.0.2:7070: connect: connection refused": "connection refused",
		"unix:/b: no such file\ntcp:10.0.0.2:7070: i/o timeout\n":                                 "i/o timeout",
		"gone":                            "gone",
		"":                                "",
		"why: " + strings.Repeat("ä", 99): strings.Repeat("ä", maxProblem-1) + "…",
	} {
		if got := shortProblem(text); got != want {
			t.Errorf("shortProblem(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestPrintNodes(t *testing.T) {
	known := labCluster()
	var b bytes.Buffer
	if err := printNodes(&b, known); err != nil {
		t.Fatal(err)
	}
	printCluster(&b, &known)
	known.State = members.State{Backend: "static"}
	printCluster(&b, &known)
	known.State = members.State{Backend: "etcd", Endpoints: []string{"h1:2379", "h2:2379"}}
	known.State.UnreachableSince = time.Date(2026, 11, 22, 17, 30, 0, 0, time.UTC)
	known.State.Problem = "h1:2379: connection refused"
	b.WriteString("\n")
	if err := printNodes(&b, known); err != nil {
		t.Fatal(err)
	}
	printCluster(&b, &known)
	golden(t, "testdata/nodes.txt", b.String())
}

func TestPrintStatAndFsck(t *testing.T) {
	var b bytes.Buffer
	rows := []statRow{
		{File: "/mnt/hmc/sim0", Type: "directory", Object: adminapi.Object{Path: "sim0", Device: "sim0"}},
		{File: "/mnt/hmc/sim0/t", Type: "file", ExtentsKnown: true, Object: adminapi.Object{
			Path: "sim0/t", Device: "sim0", Size: 4096, Allocated: 8192, State: "live", Dtype: "float32", Shape: "32,32",
			LastPath: "h2d", Extents: []adminapi.Extent{{Len: 4096, Written: 4096, Allocation: 7}},
		}},
		{File: "x", Type: "file", Object: adminapi.Object{State: "lost", Device: "sim0"}},
	}
	for _, r := range rows {
		if err := printStat(&b, r); err != nil {
			t.Fatal(err)
		}
	}
	err := printFsck(&b, adminapi.FsckReport{
		Checked: 5, Removed: 1, Repaired: 1, Problems: []adminapi.Problem{
			{Text: "wrong link count: inode 7"},
			{Text: "inode without entry: inode 8", Repaired: true, Done: "it is put back as sim0/#8"},
			{Text: "missing key: inode 9", Fault: "it comes back"},
		},
		Lost: []adminapi.LostObject{{Path: "sim0/a", Size: 1 << 20}, {Path: "sim0/b", Size: 5, Removed: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/stat_fsck.txt", b.String())
}

func TestProgressIsQuietWithoutATerminal(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "a")
	if err := os.WriteFile(src, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, "cp", src, filepath.Join(dir, "b"))
	if r.code != 0 || r.errors != "" || !strings.Contains(r.out, "1048576 bytes (1.0 MiB)") || strings.Contains(r.out, "\r") {
		t.Errorf("%+v", r)
	}
	var s struct{ Bytes int64 }
	if r := run(t, "cp", "--json", src, filepath.Join(dir, "c")); json.Unmarshal([]byte(r.out), &s) != nil || s.Bytes != 1<<20 {
		t.Errorf("%+v", r)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	signals := make(chan os.Signal, 2)
	var out, errs bytes.Buffer
	a := &app{Env: Env{Args: []string{"hmcfs"}, Stdout: &out, Stderr: &errs, Signals: signals}, force: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	signals <- os.Interrupt
	signals <- os.Interrupt
	if code := a.runWithSignals(ctx, cancel); code != 0 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

func TestInterruptedCopyTellsTheSignal(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := os.WriteFile(src, make([]byte, 32<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for signal, want := range map[os.Signal]int{os.Interrupt: 130, syscall.SIGTERM: 143} {
		signals := make(chan os.Signal, 1)
		signals <- signal
		var out, errs bytes.Buffer
		code := Run(t.Context(), Env{
			Args: []string{"hmcfs", "cp", src, dst}, Stdout: &out, Stderr: &errs, Signals: signals,
			Getenv: func(string) string { return "" },
		})
		if code != want || !strings.Contains(errs.String(), "interrupted") || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%v: exit code %d, %q, %q", signal, code, out.String(), errs.String())
		}
		if _, err := os.Stat(dst); !os.IsNotExist(err) {
			t.Errorf("%v: the target is there: %v", signal, err)
		}
	}
}

// TestAdviceNamesVerbs checks every command that a message suggests: the command exists,
// and has the flags.
func TestAdviceNamesVerbs(t *testing.T) {
	quoted := regexp.MustCompile(`(?:'|, ")hmcfs ([a-z0-9-]+)((?: --[a-z-]+)*)`)
	found := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
			found++
			verb, _, ferr := (&app{}).root().Find([]string{m[1]})
			if ferr != nil || !verb.HasParent() {
				t.Errorf("%s: hmcfs has no %q", path, m[1])
				continue
			}
			for flag := range strings.FieldsSeq(m[2]) {
				if verb.Flags().Lookup(strings.TrimPrefix(flag, "--")) == nil {
					t.Errorf("%s: hmcfs %s has no %s", path, m[1], flag)
				}
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d commands looked at, %v", found, err)
	}
}
