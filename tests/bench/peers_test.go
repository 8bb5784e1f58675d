package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/perf"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/spread"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
)

// build builds the program into a directory.
func build(dir string) error {
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "hmcfs"), "../../cmd/hmcfs")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build hmcfs: %w: %s", err, text)
	}
	return nil
}

// hmcfs returns the path of the program that was built.
func hmcfs() string { return filepath.Join(spread.Prepared(), "hmcfs") }

// TestSmallPeers measures every row of the communicator with little data, to verify that the
// program works.
func TestSmallPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	kit.Require(t, "root", "tool:ip", "tool:nsenter", "tool:iperf3", "tool:ucx_perftest")
	kit.Check(t)
	o := defaults()
	o.peers, o.picture = true, filepath.Join(t.TempDir(), "picture.svg")
	o.large, o.moved, o.slow, o.trips, o.sizes = 2*devices.MiB, devices.MiB, devices.KiB, 100, "8..4KiB"
	small(t, o, peersBegin, (&peers{opts: o, lo: &spot{at: []string{"", ""}}}).rows())
	picture, err := os.ReadFile(o.picture)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "tcp put", "unix get", "shm put", "ucx get", "512 B"} {
		if !strings.Contains(string(picture), want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}

func TestReports(t *testing.T) {
	got, err := iperfRate([]byte(`{"end": {"sum_sent": {"bits_per_second": 9}, "sum_received": {"bits_per_second": 16e9}}}`))
	if err != nil || got != 2e9 {
		t.Errorf("iperf3: %v, %v", got, err)
	}
	for _, text := range []string{"", "{}", `{"error": "unable to connect"}`} {
		if _, err = iperfRate([]byte(text)); err == nil {
			t.Errorf("iperf3 says %q, and that is a rate", text)
		}
	}
	figures, err := ucxFigures("iterations,50.0_percentile_lat,overall_bw\n   100,1.480,255.24\n")
	if err != nil || figures["50.0_percentile_lat"] != 1.48 || figures["overall_bw"] != 255.24 {
		t.Errorf("ucx_perftest: %v, %v", figures, err)
	}
	for _, text := range []string{"", "iterations,overall_bw\n", "100,2\n", "iterations,overall_bw\n100,x\n"} {
		if _, err := ucxFigures(text); err == nil {
			t.Errorf("ucx_perftest says %q, and that is a figure", text)
		}
	}
}

func TestOnly(t *testing.T) {
	r := perf.Report{Rows: []perf.Row{{Mode: "latency"}, {Mode: "bandwidth", Bytes: 8}}}
	if row, err := only(&r, "bandwidth"); err != nil || row.Bytes != 8 {
		t.Errorf("only = %+v, %v", row, err)
	}
	r.Rows = append(r.Rows, perf.Row{Mode: "bandwidth"})
	for _, mode := range []string{"bandwidth", "dance"} {
		if _, err := only(&r, mode); err == nil {
			t.Errorf("one row of %s", mode)
		}
	}
}

func TestDraw(t *testing.T) {
	var r perf.Report
	if err := draw(&r, &strings.Builder{}); err == nil {
		t.Error("nothing is drawn")
	}
	for _, way := range []comm.Transport{comm.TCP, comm.SHM} {
		for n := devices.Size(8); n <= devices.GiB; n *= 8 {
			r.Rows = append(r.Rows, perf.Row{
				Mode: "bandwidth", Operation: "put", Transport: way, Network: control.TCP, Bytes: n, GBs: float64(n) / 1e3,
			})
		}
	}
	var svg strings.Builder
	if err := draw(&r, &svg); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"tcp put", "shm put", "8 B", "128 MiB", "</svg>"} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}
