package ucx

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// perftestRounds is the number of rounds of each side, alternating.
const perftestRounds = 3

// BenchmarkAgainstPerftest puts as ucx_perftest's ucp_put_bw does, with the same
// UCX_TLS, alternating with it: the metrics are medians, in bytes of 1e9, and
// their ratio.
func BenchmarkAgainstPerftest(b *testing.B) {
	kit.Require(b, "tool:ucx_perftest")
	for _, c := range []struct {
		name string
		o    Options
		own  bool
	}{
		{"tcp", Options{Transports: "tcp"}, false},
		{"tcp-one-sided", Options{Transports: "tcp", OneSided: true}, false},
		{"posix", Options{Transports: "posix,self"}, false},
		{"posix-one-sided-own", Options{Transports: "posix,self", OneSided: true}, true},
		{"posix-cma", Options{Transports: "posix,cma,self"}, false},
	} {
		for _, size := range []int{1 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("%s/%dMiB", c.name, size>>20), func(b *testing.B) {
				var ours, theirs []float64
				for range perftestRounds {
					theirs = append(theirs, perftest(b, c.o.Transports, size))
					ours = append(ours, putRate(b, peerPlan{Options: c.o, Size: size, Own: c.own}))
				}
				slices.Sort(ours)
				slices.Sort(theirs)
				x, y := ours[perftestRounds/2], theirs[perftestRounds/2]
				b.ReportMetric(x, "GB/s")
				b.ReportMetric(y, "perftest-GB/s")
				b.ReportMetric(x/y, "ratio")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// repeats returns the number of times that a size is put.
func repeats(size int) int { return max(8, (256<<20)/size) }

// putRate is the rate of puts into a peer process, in GB/s.
func putRate(b *testing.B, plan peerPlan) float64 {
	b.Helper()
	s, p, w := meet(b, plan)
	defer p.kill()
	defer s.Close()
	op := window.Op{Kind: wire.KindPut, Local: benchLocal(b, s, plan), Size: devices.Size(plan.Size)}
	must(b, w, op)
	n := repeats(plan.Size)
	done := make(result, window32)
	begin := time.Now()
	for begun, ended := 0, 0; ended < n; ended++ {
		for ; begun < n && begun < ended+window32; begun++ {
			w.Start(&op, done)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	return float64(n) * float64(plan.Size) / time.Since(begin).Seconds() / 1e9
}

// perftest returns the overall rate that ucx_perftest reports, in GB/s.
func perftest(b *testing.B, tls string, size int) float64 {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	_, port, _ := strings.Cut(l.Addr().String(), ":")
	_ = l.Close()
	env := append(os.Environ(), "UCX_TLS="+tls)
	server := exec.Command("ucx_perftest", "-p", port)
	server.Env = env
	if err = server.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait() // it may have ended
	}()
	var out []byte
	kit.Eventually(b, patience, func() error {
		client := exec.Command("ucx_perftest", "-p", port, "127.0.0.1", "-t", "ucp_put_bw",
			"-s", strconv.Itoa(size), "-n", strconv.Itoa(repeats(size)), "-w", "2", "-f")
		client.Env = env
		said, cerr := client.Output()
		out = said
		return cerr
	})
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fields := strings.Fields(lines[len(lines)-1])
	if len(fields) < 6 {
		b.Fatalf("ucx_perftest says %s", out)
	}
	rate, err := strconv.ParseFloat(fields[5], 64)
	if err != nil {
		b.Fatalf("ucx_perftest says %s", out)
	}
	return rate * (1 << 20) / 1e9
}
