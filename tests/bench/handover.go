package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// giveWarmUp is the number of hand-overs before those that count.
const giveWarmUp = 3

// handing is a process of a hand-over: a session, and memory that is one key.
type handing struct {
	session *client.Session
	all     []byte
	lists   []hetero.DeviceBlobList
}

func openHanding(ctx context.Context, socket string, size devices.Size) (*handing, error) {
	s, err := client.OpenSession(ctx, socket)
	if err != nil {
		return nil, err
	}
	id, all, err := sharedMemory(ctx, s, size)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &handing{
		session: s, all: all,
		lists: []hetero.DeviceBlobList{{Device: "host", Blobs: []hetero.Blob{{Memory: id, Size: size}}}},
	}, nil
}

func (h *handing) close() error { return errors.Join(h.session.Close(), unix.Munmap(h.all)) }

// handingBytes fills memory with what both processes know of a round.
func handingBytes(p []byte, round int) {
	_, _ = rand.NewChaCha8([32]byte{byte(round)}).Read(p) // it never fails
}

func handingKey(round int) []string { return []string{fmt.Sprintf("handed-%d", round)} }

// monotonic returns a time that processes share, in seconds.
func monotonic() (float64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return float64(t.Nano()) / 1e9, err
}

// giveTask publishes memory to a process that it starts, times over, and returns the median of
// the seconds from the start of publish to the end of subscribe.
func giveTask(ctx context.Context, socket string, size devices.Size, times int) (median float64, err error) {
	ctx, stop := context.WithTimeout(ctx, patience) // a taker that has failed takes nothing
	defer stop()
	h, err := openHanding(ctx, socket, size)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	taker := exec.CommandContext(ctx, self, childArg, "take", socket, strconv.FormatUint(uint64(size), 10), strconv.Itoa(times))
	taker.Stderr = os.Stderr
	out, err := taker.StdoutPipe()
	if err == nil {
		err = taker.Start()
	}
	if err != nil {
		return 0, err
	}
	took, err := h.give(ctx, bufio.NewScanner(out), times)
	if err != nil {
		_ = taker.Process.Kill()
	}
	return took.Median(), errors.Join(err, taker.Wait())
}

// give publishes each key when the taker has subscribed to it.
func (h *handing) give(ctx context.Context, said *bufio.Scanner, times int) (took bench.Series, err error) {
	var begun float64
	for i := range giveWarmUp + times + 1 {
		if !said.Scan() {
			return nil, errors.Join(said.Err(), io.ErrUnexpectedEOF)
		}
		ended, err := strconv.ParseFloat(said.Text(), 64)
		if err != nil {
			return nil, err
		}
		if i > giveWarmUp {
			took = append(took, ended-begun)
		}
		if i == giveWarmUp+times {
			break
		}
		handingBytes(h.all, i)
		if begun, err = monotonic(); err != nil {
			return nil, err
		}
		futures, err := h.session.DevPublish(ctx, handingKey(i), h.lists)
		if err == nil {
			err = futures[0].Wait(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	return took, nil
}

// takeTask subscribes to keys, one after the other. Before it waits for one it says when the one
// before was there.
func takeTask(ctx context.Context, socket string, size devices.Size, times int) (ended float64, err error) {
	h, err := openHanding(ctx, socket, size)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	want := make([]byte, size)
	for i := range giveWarmUp + times {
		futures, err := h.session.DevSubscribe(ctx, handingKey(i), h.lists, hetero.SubscribeOptions{})
		if err != nil {
			return 0, err
		}
		fmt.Fprintln(os.Stdout, ended)
		if err = futures[0].Wait(ctx); err != nil {
			return 0, err
		}
		if ended, err = monotonic(); err != nil {
			return 0, err
		}
		if handingBytes(want, i); string(want) != string(h.all) {
			return 0, fmt.Errorf("the bytes of hand-over %d are others", i)
		}
	}
	return ended, nil
}

// plainTask copies between the memory of two sessions of this process, times over, and returns the
// median of the seconds. What the processes of a hand-over do with the memory between two of them
// is done here too, so that the caches have as much of it.
func plainTask(ctx context.Context, socket string, size devices.Size, times int) (median float64, err error) {
	var ends [2]*handing
	for i := range ends {
		if ends[i], err = openHanding(ctx, socket, size); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, ends[i].close()) }()
	}
	from, to, want := ends[0].all, ends[1].all, make([]byte, size)
	var took bench.Series
	for i := range giveWarmUp + times {
		handingBytes(want, i)
		handingBytes(from, i)
		begun := time.Now()
		copy(to, from)
		if i >= giveWarmUp {
			took = append(took, time.Since(begun).Seconds())
		}
		if string(want) != string(to) {
			return 0, fmt.Errorf("the bytes of copy %d are others", i)
		}
	}
	return took.Median(), nil
}

// betweenProcesses compares a hand-over between two processes with the copy of its bytes.
func (c *beside) betweenProcesses() row {
	size := c.handed()
	in := func(name, task string) side {
		return side{Name: name, Prepare: c.server, Run: func(ctx context.Context) (float64, error) {
			return child(ctx, exec.CommandContext, task, c.lobby.lab.mnt.Socket(), strconv.FormatUint(uint64(size), 10), strconv.Itoa(times))
		}}
	}
	return row{
		name: "hand-over of " + short(size) + " between two processes", unit: micros,
		sides: []side{in("hand-over", "give"), in("copy", "copy")},
		wants: []want{{of: "hand-over", against: "copy", bound: 1.5, atMost: true}},
		notes: []string{
			"From the start of publish in one process to the end of subscribe in another, which has waited for it; the copy is a process's,",
			"between memory of the same kind. Before each, new bytes are written to the source; after each, all are compared.",
		},
	}
}
