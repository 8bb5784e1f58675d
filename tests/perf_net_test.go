package tests

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/perf"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/netns"
)

// TestPerfBetweenNamespaces measures between two machines, as far as the kernel is concerned:
// by IPv4, IPv6, and a host name that has both.
func TestPerfBetweenNamespaces(t *testing.T) {
	kit.Check(t)
	ends, cable := cableEnds(t)
	_, at := ends.listen(t, []string{cable.Right.IPv4 + ":0", "[" + cable.Right.IPv6 + "]:0"})
	_, port4, err := net.SplitHostPort(at[0])
	must(t, err)
	_, port6, err := net.SplitHostPort(at[1])
	must(t, err)
	addresses := []string{at[0], at[1], cable.Right.Name + ":" + port4, cable.Right.Name + ":" + port6}
	for _, channels := range []string{"1", "3"} {
		r := ends.measures(t, append(append(little(), "--transport", "tcp", "--channels", channels), addresses...)...)
		if len(r.Sessions) != len(addresses) {
			t.Errorf("sessions %+v", r.Sessions)
		}
	}
	// Memory that both ends map requires one machine, and the error says so.
	p := ends.start(t, ends.run, "run", append(little(), "--transport", "shm", at[0])...)
	if code := p.code(); code != 1 || !strings.Contains(p.said.String(), "shm: ") {
		t.Errorf("shm between machines: exit code %d, %s", code, p.said.String())
	}

	wrong := *ends
	wrong.secret = newSecret(t)
	must(t, appendTo(wrong.secret, "another"))
	p = wrong.start(t, wrong.run, "run", append(little(), at[0])...)
	if code := p.code(); code != 1 || !strings.Contains(p.said.String(), "both sides have the same secret") {
		t.Errorf("with a wrong secret: exit code %d, %s", code, p.said.String())
	}
	ends.measures(t, append(little(), at[1])...)
}

func TestPerfCablePulledTag(t *testing.T) { perfCutIn(t, perf.OpTag, "pulled") }
func TestPerfCablePulledPut(t *testing.T) { perfCutIn(t, perf.OpPut, "vanished") }
func TestPerfCablePulledGet(t *testing.T) { perfCutIn(t, perf.OpGet, "pulled") }

// perfCutIn pulls the cable in the middle of a transfer, or lets the other machine disappear
// behind it, and in exhaustive tests both: both sides end the transfer by their timeout, and
// start again when the connection is restored.
func perfCutIn(t *testing.T, operation, usual string) {
	t.Helper()
	for name, cut := range map[string]func(*netns.Space, context.Context) error{
		"pulled": (*netns.Space).Pull, "vanished": (*netns.Space).Vanish,
	} {
		if name == usual || kit.Exhaustive() {
			t.Run(name, func(t *testing.T) { perfCut(t, operation, cut) })
		}
	}
}

func perfCut(t *testing.T, operation string, cut func(*netns.Space, context.Context) error) {
	kit.Check(t)
	ends, cable := cableEnds(t)
	server, at := ends.listen(t, []string{cable.Right.IPv4 + ":0"})
	runner := ends.start(t, ends.run, "run", append(endless(operation), at[0])...)
	runner.works(server)
	must(t, cut(cable.Right, t.Context()))
	if code := runner.code(); code != 1 || !strings.Contains(runner.said.String(), "rank 0") {
		t.Errorf("the runner: exit code %d, %s", code, runner.said.String())
	}
	server.says("rank 1: control: disconnected: ")
	if got := server.said.String(); strings.Contains(got, "on this side") {
		t.Errorf("the server does not say why: %s", got)
	}
	must(t, cable.Right.Plug(t.Context()))
	// The kernel takes a moment to find the route again.
	kit.Eventually(t, perfPatience, func() bool {
		return ends.start(t, ends.run, "run", append(little(), at[0])...).code() == 0
	})
}

func TestPerfKilledTCP(t *testing.T) {
	perfKilledIn(t, "tcp", "127.0.0.1:0", perf.OpPut, perf.OpGet, perf.OpRecv)
}

func TestPerfKilledUnix(t *testing.T) { perfKilledIn(t, "tcp", "unix", perf.OpPut) }

func TestPerfKilledSHM(t *testing.T) {
	perfKilledIn(t, "shm", "unix", perf.OpTag, perf.OpPut, perf.OpGet, perf.OpRecv)
}

func TestPerfKilledUCX(t *testing.T) {
	kit.Require(t, "tool:ucx_perftest")
	perfKilledIn(t, "ucx", "unix", perf.OpPut, perf.OpGet) // over TCP the session is encrypted
}

// perfKilledIn kills in the first operation, and in exhaustive tests in all.
func perfKilledIn(t *testing.T, transport, listen string, operations ...string) {
	t.Helper()
	if !kit.Exhaustive() {
		operations = operations[:1]
	}
	for _, operation := range operations {
		t.Run(operation, func(t *testing.T) { perfKilled(t, transport, listen, operation) })
	}
}

// perfKilled kills one of the two processes in the middle of a transfer: the other reports the
// lost rank, and a new one can connect as usual.
func perfKilled(t *testing.T, transport, listen, operation string) {
	kit.Check(t)
	ends := hereEnds(t)
	if listen == "unix" {
		listen = "unix:" + filepath.Join(filepath.Dir(ends.secret), "s")
	}
	server, told := ends.listen(t, []string{listen})
	at := told[0]
	fine := append(little(), "--transport", transport, at)
	moving := append(endless(operation), "--transport", transport, at)

	runner := ends.start(t, ends.run, "run", moving...)
	runner.works(server)
	runner.kill()
	server.says("rank 1")
	ends.measures(t, fine...)

	runner = ends.start(t, ends.run, "run", moving...)
	runner.works(server)
	server.kill()
	if code := runner.code(); code != 1 || !strings.Contains(runner.said.String(), "rank 0") {
		t.Errorf("the runner: exit code %d, %s", code, runner.said.String())
	}
	// At the same address, where the killed server has left its socket.
	ends.listen(t, []string{at})
	ends.measures(t, fine...)
}
