package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// hostOptions returns the options of a host that is this test binary.
func hostOptions(tmp string) *HostOptions {
	return &HostOptions{TempDir: tmp, Executable: "/proc/self/exe", Supervisor: []string{"test", asSupervisor, "--"}}
}

// remotely makes a job run on two hosts with two ranks each; one of them may be the local
// one. The agent stays between the runner and the host, as ssh does.
func remotely(o *Options, tmp string, names ...string) {
	if names == nil {
		names = []string{"a", "b"}
	}
	for _, name := range names {
		o.Hosts = append(o.Hosts, Place{Name: name, Slots: 2, Address: "127.0.0.1"})
	}
	o.Ranks = 0
	o.Agent = []string{"sh", "-c", `echo "welcome to $1"; shift; "$@"; exit $?`, "agent"}
	o.RemoteCommand = []string{self(), asHost, tmp}
}

// newRemote is newWorld on two hosts.
func newRemote(t *testing.T, names []string, program ...string) *world {
	t.Helper()
	w := newWorld(t, 0, program...)
	remotely(&w.options, w.dir, names...)
	return w
}

func TestHosts(t *testing.T) {
	for _, names := range [][]string{{"a", "b"}, {Here, "b"}, {"a", Here}} {
		t.Run(strings.Join(names, " "), func(t *testing.T) {
			w := newRemote(t, names, "sh", "-c", `echo "$HMCFS_LOCAL_RANK of $HMCFS_LOCAL_WORLD, $HMCFS_RANK of $HMCFS_WORLD, $(ls $HMCFS_WINDOWS | tr '\n' ' ')in $(pwd), ${HMCFS_HOST#*.} $X"; echo "$HMCFS_BOOK" | tr , '\n' | sed 's/:.*//' | tr '\n' ' '; test -n "$HMCFS_LISTEN" && "`+self()+`" `+asBarrier)
			w.options.WorkDir, w.options.Export = w.dir, []string{"X=y"}
			w.options.LogDir = filepath.Join(w.dir, "logs")
			r, err := w.run(t.Context(), nil)
			if err != nil || len(r.Endings) != 4 {
				t.Fatal(r, err, w.errs.String())
			}
			for rank := range 4 {
				w.saysWhoItIs(rank, names[rank/2])
				if r.Endings[rank].Host != names[rank/2] {
					t.Errorf("%+v", r.Endings[rank])
				}
			}
		})
	}
}

// saysWhoItIs checks the output of a rank of TestHosts.
func (w *world) saysWhoItIs(rank int, name string) {
	w.t.Helper()
	host, dir, book := rank/2, w.dir, "unix unix tcp tcp "
	if name == Here {
		dir = must(os.Getwd())
	}
	if host == 1 {
		book = "tcp tcp unix unix "
	}
	first := fmt.Sprintf("%d of 2, %d of 4, %d %d in %s, %d y", rank%2, rank, 2*host, 2*host+1, dir, host)
	log, err := os.ReadFile(filepath.Join(w.options.LogDir, "rank"+strconv.Itoa(rank)+".log"))
	if err != nil || string(log) != first+"\n"+book {
		w.t.Errorf("rank %d says %q, want %q, %v", rank, log, first+"\n"+book, err)
	}
	if !strings.Contains(w.out.String(), prefixOf(rank, 4)+first+"\n") {
		w.t.Errorf("%q", w.out.String())
	}
}

// TestBytesStay: strings that are not UTF-8 are passed on unmodified, on local and remote
// hosts.
func TestBytesStay(t *testing.T) {
	const odd = "a\xff\xfe<&"
	for _, names := range [][]string{{Here}, {Here, "b"}} {
		w := newRemote(t, names, "sh", "-c", `test "$1" = "$(printf 'a\377\376<&')" && test "$X" = "$1"`, "sh", odd)
		dir := filepath.Join(w.dir, odd)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		w.options.WorkDir, w.options.Dir, w.options.Export = dir, dir, []string{"X=" + odd}
		if r, err := w.run(t.Context(), nil); err != nil {
			t.Error(names, r, err)
		}
	}
}

// TestHostsVerify compares outputs on their hosts, and fetches all buffers.
func TestHostsVerify(t *testing.T) {
	for name, value := range map[string]string{"right": "10*rank + i", "wrong": "10*rank + i + 1"} {
		w := newRemote(t, nil, "sh", "-c", `test -s "$HMCFS_BUFFER_X"`)
		w.options.Save = filepath.Join(w.dir, "save")
		n := uint64(piece + 1)
		c := &Config{
			Buffers: []Buffer{{Name: "x", DType: "int32", Count: n, Placement: "window"}, {Name: "y", DType: "uint8", Count: 3}},
			Inputs:  []string{"x"}, Outputs: []string{"x"}, Verify: "all",
			Generate: &Source{Values: map[string]string{"x": "10*rank + i"}}, Golden: &Source{Values: map[string]string{"x": value}},
		}
		r, err := w.run(t.Context(), c)
		if err != nil || r.Verdict == nil || r.Verdict.Compared != 4*n {
			t.Fatal(name, r, err)
		}
		if wrong := r.Verdict.Wrong; wrong != map[string]uint64{"right": 0, "wrong": 4 * n}[name] {
			t.Errorf("%s: %d are wrong", name, wrong)
		}
		if name == "wrong" && (len(r.Verdict.First) != 4*shown || r.Verdict.First[10].String() != "rank 2 x[0]: got 20, want 21") {
			t.Errorf("%v", r.Verdict.First)
		}
		for rank := range 4 {
			dir := filepath.Join(w.options.Save, "rank_"+strconv.Itoa(rank))
			x, y := must(os.ReadFile(filepath.Join(dir, "x.bin"))), must(os.ReadFile(filepath.Join(dir, "y.bin")))
			if uint64(len(x)) != 4*n || len(y) != 3 || int(x[0]) != 10*rank || int(x[4])+256*int(x[5]) != 10*rank+1 {
				t.Errorf("rank %d has saved %d and %d bytes, %v", rank, len(x), len(y), x[:8])
			}
		}
	}
}

// TestHostsEnd ends ranks, hosts and agents in various ways while all ranks wait: no
// process may survive.
func TestHostsEnd(t *testing.T) {
	const wait = `if [ $HMCFS_RANK = 3 ]; then until [ $(wc -l < "$PIDS") = 8 ]; do :; done; `
	const stay = `fi; exec sleep 1000`
	for name, c := range map[string]struct{ script, want string }{
		"exit code":  {`exit 7; `, "rank 3 ended with exit code 7; the other ranks were ended"},
		"signal":     {`kill -9 $$; `, "rank 3 was ended by SIGKILL; the other ranks were ended"},
		"supervisor": {`kill -9 $PPID; `, "rank 3: its supervisor was killed; the other ranks were ended"},
		// The host is the parent of the supervisor, and the agent is the parent of the
		// host.
		"host":  {`kill -9 $(ps -o ppid= $PPID); `, "rank 2: host b is lost: sh ended with exit code 137"},
		"agent": {`kill -9 $(ps -o ppid= $(ps -o ppid= $PPID)); `, "rank 2: host b is lost: sh was ended by SIGKILL"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRemote(t, nil, "sh", "-c", background+wait+c.script+stay)
			file := filepath.Join(w.dir, "pids")
			p := must(NewPlan(w.options, &Config{Env: map[string]string{"PIDS": file}}))
			r, err := Run(t.Context(), p, nil)
			if !errors.Is(err, ErrRank) || !strings.HasPrefix(err.Error(), c.want) || r == nil || len(r.Endings) != 4 {
				t.Errorf("%v, %+v, %s", err, r, w.errs.String())
			}
			all := pids(file)
			if len(all) != 8 {
				t.Fatalf("%v", all)
			}
			kit.Eventually(t, time.Minute, func() bool { return !slices.ContainsFunc(all, running) })
			kit.Eventually(t, time.Minute, func() bool {
				left, _ := filepath.Glob(filepath.Join(w.dir, "hmcfs-job-*"))
				return len(left) == 0
			})
		})
	}
}

// TestRunnerOfHostsIsKilled: hosts end their ranks after the runner was killed.
func TestRunnerOfHostsIsKilled(t *testing.T) { killRunner(t, 8, "HOSTS=2") }

// TestHostsStopped: a signal, and a timeout, end the ranks of all hosts in order, and also
// ranks that ignore SIGTERM.
func TestHostsStopped(t *testing.T) {
	w := newRemote(t, nil, "sh", "-c", `trap 'echo orderly; exit 0' TERM; echo $$ >> "$PIDS"; sleep 1000 & wait`)
	file := filepath.Join(w.dir, "pids")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := Run(ctx, must(NewPlan(w.options, &Config{Env: map[string]string{"PIDS": file}})), nil)
		ended <- err
	}()
	kit.Eventually(t, time.Minute, func() bool { return len(pids(file)) == 4 })
	cancel()
	if err := <-ended; !errors.Is(err, ErrStopped) || strings.Count(w.out.String(), "orderly") != 4 {
		t.Errorf("%v, %q", err, w.out.String())
	}
	w.empty()
	w = newRemote(t, nil, "sh", "-c", `trap "" TERM; while :; do sleep 1000; done`)
	w.options.Timeout, w.options.Grace = 200*time.Millisecond, 100*time.Millisecond
	if r, err := w.run(t.Context(), nil); !errors.Is(err, ErrTimeout) || len(r.Endings) != 4 {
		t.Error(r, err)
	}
}

// TestHostsRefuse: the error names the host that can't do a step, no rank has started, and
// nothing is left on the other hosts.
func TestHostsRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *Options)
		is     error
		want   string
	}{
		"unreachable": {func(o *Options) {
			o.Agent = []string{"sh", "-c", `if [ $1 = b ]; then echo "no route to b" >&2; exit 255; fi; shift; exec "$@"`, "agent"}
		}, ErrHost, "host b can't be reached: sh ended with exit code 255: no route to b"},
		"no agent":  {func(o *Options) { o.Agent = []string{"no-such-agent"} }, ErrHost, `host a: agent "no-such-agent": executable file not found`},
		"no hmcfs":  {func(o *Options) { o.RemoteCommand = []string{"no-such-hmcfs"} }, ErrHost, "host a can't be reached: sh ended with exit code 127: "},
		"program":   {func(o *Options) { o.Program = []string{"no-such-program"} }, ErrProgram, `host a: program "no-such-program": `},
		"directory": {func(o *Options) { o.WorkDir = "/no/such" }, ErrPlace, "host a: the ranks' current directory: chdir /no/such: no such file or directory"},
		"windows":   {func(o *Options) { o.Dir = "/no/such" }, ErrPlace, "host a: create windows: mkdir /no/such/"},
		"address":   {func(o *Options) { o.Hosts[0].Address = "203.0.113.7" }, nil, "host a: listen on 203.0.113.7: cannot assign"},
		"not a host": {func(o *Options) {
			o.RemoteCommand = []string{"sh", "-c", "echo hello; exec sleep 1000"}
			o.HostTimeout = time.Second
		}, ErrHost, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRemote(t, nil, "touch", "started")
			w.options.WorkDir = w.dir
			c.change(&w.options)
			r, err := w.run(t.Context(), nil)
			if r != nil || err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Fatal(r, err)
			}
			// Both may have failed, and the first one counts.
			got := strings.ReplaceAll(err.Error(), "host b", "host a")
			if want := strings.ReplaceAll(c.want, "host b", "host a"); !strings.Contains(got, want) {
				t.Errorf("%q is not %q", got, want)
			}
			if _, err = os.Stat(filepath.Join(w.dir, "started")); err == nil {
				t.Error("a rank has begun")
			}
		})
	}
}

// TestHostIsSilent: a connected host that falls silent is lost, and so is a silent runner
// for a host.
func TestHostIsSilent(t *testing.T) {
	w := newRemote(t, nil, "sh", "-c", `if [ $HMCFS_RANK = 2 ]; then kill -STOP $(ps -o ppid= $PPID); echo $(ps -o ppid= $PPID) > "$PIDS"; fi; exec sleep 1000`)
	file := filepath.Join(w.dir, "pids")
	w.options.Silence = 15 * time.Second // a busy machine takes seconds to start a host
	_, err := Run(t.Context(), must(NewPlan(w.options, &Config{Env: map[string]string{"PIDS": file}})), nil)
	if err == nil || !strings.Contains(err.Error(), "host b is lost: no message was received from it for 15s") {
		t.Error(err)
	}
	for _, pid := range pids(file) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	kit.Eventually(t, time.Minute, func() bool {
		left, _ := filepath.Glob(filepath.Join(w.dir, "hmcfs-job-*"))
		return len(left) == 0
	})
	from, to := must2(os.Pipe())
	defer adminapi.CloseAll([]*os.File{from, to})
	var said bytes.Buffer
	b := brief{Job: "j", Config: Config{}, Program: wordsOf([]string{"true"}), Count: 8, Hosts: 1, Silence: 50 * time.Millisecond}
	if _, err = to.Write(must(encode(kindBrief, &b))); err != nil {
		t.Fatal(err)
	}
	if err = ServeHost(t.Context(), from, &said, hostOptions(w.dir)); err == nil || !strings.Contains(err.Error(), "no message was received from it for 50ms") {
		t.Error(err)
	}
}

func must2[T, U any](v T, w U, err error) (T, U) {
	if err != nil {
		panic(err)
	}
	return v, w
}
