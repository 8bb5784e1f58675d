package main

import (
	"context"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

//go:embed others/calls.py
var callsSource []byte

// debianPython has the packages of Debian: NumPy, and the client of Redis.
const debianPython = "/usr/bin/python3"

// redis is a server, and the program that calls it from Python.
type redis struct {
	*measure.Redis
	dir string
}

// startRedis starts a server below a directory; Stop ends it.
func startRedis(ctx context.Context, dir string) (r *redis, err error) {
	for _, tool := range []string{"redis-server", "redis-benchmark"} {
		if err = installed(tool); err != nil {
			return nil, fmt.Errorf("%w; install redis-server and python3-redis", err)
		}
	}
	r = &redis{dir: filepath.Join(dir, "redis")}
	if err = os.Mkdir(r.dir, 0o700); err == nil {
		err = os.WriteFile(r.script(), callsSource, 0o600)
	}
	if err == nil {
		r.Redis, err = measure.StartRedis(ctx, r.dir)
	}
	return r, err
}

func (r *redis) script() string { return filepath.Join(r.dir, "calls.py") }

// rate measures calls of one client with its own program: GET or SET of values of one size, in
// pipelines. It returns the calls per second.
func (r *redis) rate(ctx context.Context, call string, size devices.Size, calls, pipeline int) (float64, error) {
	// The program reads the value that SET has written before.
	out, err := measure.Output(exec.CommandContext(ctx, "redis-benchmark", "-s", r.Socket, "-c", "1", "--csv",
		"-P", strconv.Itoa(pipeline), "-n", strconv.Itoa(calls), "-d", strconv.FormatUint(uint64(size), 10), "-t", "set,get"))
	if err != nil {
		return 0, err
	}
	return redisRate(out, call)
}

// crowd returns the GETs per second of n processes together, each of which makes some calls one after the other.
func (r *redis) crowd(ctx context.Context, n int, size devices.Size, calls int) (float64, error) {
	rates, errs := make([]float64, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { rates[i], errs[i] = r.rate(ctx, "GET", size, calls, 1) })
	}
	all.Wait()
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
	return sum, errors.Join(errs...)
}

// redisRate parses the report: "SET","47619.05",….
func redisRate(report, call string) (float64, error) {
	in := csv.NewReader(strings.NewReader(report))
	in.FieldsPerRecord = -1
	lines, err := in.ReadAll()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark says %q: %w", report, err)
	}
	for _, fields := range lines {
		if len(fields) > 1 && fields[0] == call {
			return strconv.ParseFloat(fields[1], 64)
		}
	}
	return 0, fmt.Errorf("redis-benchmark says %q", report)
}

// python runs calls.py, and returns the seconds that a call takes.
func (r *redis) python(ctx context.Context, args ...string) (float64, error) {
	packages, err := filepath.Abs(pythonPackage())
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, debianPython, append([]string{r.script()}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
	out, err := measure.Output(cmd)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(out, 64)
}

// pythonPackage returns the directory of the Python package, from the top of the repository or
// from here.
func pythonPackage() string {
	const at = "objects/client/python"
	if _, err := os.Stat(at); err == nil {
		return at
	}
	return filepath.Join("..", "..", at)
}
