package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// errNoDevice reports that the machine lacks the device.
var errNoDevice = errors.New("no such device here")

// device describes the device that is checked and measured.
type device struct {
	name, family, spec, model string
	free                      devices.Size
}

func (d device) title() string { return d.name + " (" + d.model + ")" }

// ordinal returns the device's number in its family.
func (d device) ordinal() string {
	_, n, ok := strings.Cut(d.spec, ":")
	if !ok {
		return "0"
	}
	return n
}

// find asks hmcfs for the device. A simulated device is created on request.
func (s *suite) find(ctx context.Context) (device, error) {
	name := s.opts.device
	if strings.HasPrefix(name, "sim") {
		return device{
			name: name, family: "sim", spec: "sim:" + name[3:], model: "simulated", free: min(4*devices.GiB, available()/4),
		}, nil
	}
	out, err := measure.Output(s.tool(ctx, "hmcfs", "devices", "--json"))
	if err != nil {
		return device{}, err
	}
	var families []struct {
		Family, Reason string
		Devices        []struct {
			Name, Spec, Model string
			Free              devices.Size
		}
	}
	if err := json.Unmarshal([]byte(out), &families); err != nil {
		return device{}, fmt.Errorf("read what hmcfs devices says: %w", err)
	}
	var reasons []string
	for _, f := range families {
		for _, d := range f.Devices {
			if d.Name == name {
				return device{name: name, family: f.Family, spec: d.Spec, model: d.Model, free: d.Free}, nil
			}
		}
		if f.Reason != "" {
			reasons = append(reasons, f.Family+": "+f.Reason)
		}
	}
	return device{}, fmt.Errorf("%s: %w; %s", name, errNoDevice, strings.Join(reasons, "; "))
}

// lookAround collects the facts about the machine that the measured numbers depend on.
func (s *suite) lookAround(ctx context.Context) []string {
	facts := []string{"date: " + time.Now().UTC().Format(time.DateOnly)}
	add := func(name, value string) { facts = append(facts, name+": "+strings.TrimSpace(value)) }
	version, err := measure.Output(s.tool(ctx, "hmcfs", "version"))
	add("hmcfs", orError(version, err))
	add("device", s.device.model)
	if s.device.family == "cuda" {
		card, err := measure.Output(s.tool(ctx, "cudaraw", "facts", s.device.ordinal()))
		add("card", orError(card, err))
		add("driver", firstLine("/proc/driver/nvidia/version"))
	}
	add("machine", fmt.Sprintf("%d processors (%s), %v of memory free", runtime.NumCPU(), measure.Field("/proc/cpuinfo", "model name"), available()))
	add("kernel", measure.Kernel())
	if name := sandbox(); name != "" {
		add("sandbox", name)
	}
	add("user", fmt.Sprintf("uid %d, effective capabilities %s", os.Geteuid(), measure.Field("/proc/self/status", "CapEff")))
	add("/dev/fuse", presence("/dev/fuse"))
	add("descriptors of other processes", orError("may be taken", s.descriptors))
	if s.mount != nil {
		if st, err := s.mount.Status(ctx); err == nil {
			add("passthrough", map[bool]string{true: "on", false: "off: " + st.Passthrough.Reason}[st.Passthrough.On])
		}
		add("tmpfs", s.tmpfs)
	}
	add("sizes", fmt.Sprintf("files of %v, copied inside the device %v, to and from the host tier %v; medians of %d rounds",
		s.sizes.file, s.sizes.large, s.sizes.staged, s.opts.rounds))
	if s.opts.quick {
		add("quick", "the numbers mean nothing, only what is correct counts")
	}
	return facts
}

func orError(text string, err error) string {
	if err != nil {
		return oneLine(err.Error())
	}
	return text
}

func presence(path string) string {
	if _, err := os.Stat(path); err != nil {
		return err.Error()
	}
	return "there"
}

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}
