package top

import (
	"context"
	"fmt"
	"os/user"
	"strconv"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// Source reports the state of a mount. A client of the admin socket is one.
type Source interface {
	Status(ctx context.Context, count bool) (adminapi.Status, error)
	Activity(ctx context.Context) (adminapi.Activity, error)
}

// sample is the state of a mount at one time.
type sample struct {
	at       time.Time
	status   adminapi.Status
	activity adminapi.Activity
}

func take(ctx context.Context, from Source) (s sample, err error) {
	s.at = time.Now()
	if s.status, err = from.Status(ctx, false); err == nil {
		s.activity, err = from.Activity(ctx)
	}
	return s, err
}

// Report describes a mount between two samples, and its state at the second one. Rates are per
// second.
type Report struct {
	At time.Time `json:"at"`
	// Seconds is the time between the samples; 0 without a first one, when all rates are 0.
	Seconds       float64                  `json:"seconds"`
	MountPoint    string                   `json:"mount_point"`
	Version       string                   `json:"version"`
	UptimeSeconds float64                  `json:"uptime_seconds"`
	Resident      devices.Size             `json:"resident"`
	Passthrough   bool                     `json:"passthrough"`
	Devices       []Device                 `json:"devices"`
	Processes     []Process                `json:"processes"`
	Paths         []Path                   `json:"paths"`
	Sessions      []adminapi.Session       `json:"sessions"`
	Nodes         []Node                   `json:"nodes"`
	Slow          []adminapi.SlowOperation `json:"slow"`
}

// Device is a device with the bytes that were copied from and to it.
type Device struct {
	Name  devices.Name `json:"name"`
	Model string       `json:"model"`
	Used  devices.Size `json:"used"`
	Total devices.Size `json:"total"`
	Bytes uint64       `json:"bytes"`
	Rate  float64      `json:"bytes_per_second"`
}

// Process is a process that moves bytes.
type Process struct {
	adminapi.Process
	User      string  `json:"user"`
	ReadRate  float64 `json:"read_per_second"`
	WriteRate float64 `json:"write_per_second"`
}

// Path is a path that bytes take from or to a device.
type Path struct {
	Path          string  `json:"path"`
	Device        string  `json:"device"`
	Bytes         uint64  `json:"bytes"`
	Operations    uint64  `json:"operations"`
	Errors        uint64  `json:"errors"`
	Rate          float64 `json:"bytes_per_second"`
	OperationRate float64 `json:"operations_per_second"`
}

// Node is another node of the mount's cluster.
type Node struct {
	Name      string `json:"name"`
	Connected bool   `json:"connected"`
	Transport string `json:"transport,omitempty"`
	Problem   string `json:"problem,omitempty"`
}

// rates are calculated for counters of one mount. A counter that has become smaller belongs to
// another daemon, and counts from its start.
type rates float64

func (seconds rates) of(before, after uint64) float64 {
	if after < before {
		before = 0
	}
	if seconds <= 0 {
		return 0
	}
	return float64(after-before) / float64(seconds)
}

// compare returns the report of two samples. A sample without a time has no counters.
func compare(before, after sample, users *users) Report {
	st := after.status
	if before.status.Started != st.Started {
		before = sample{}
	}
	var per rates
	if !before.at.IsZero() {
		per = rates(after.at.Sub(before.at).Seconds())
	}
	r := Report{
		At: after.at, Seconds: float64(per), MountPoint: st.MountPoint, Version: st.Version, UptimeSeconds: st.UptimeSeconds,
		Resident: st.Memory.Resident, Passthrough: st.Passthrough.On,
		Devices: []Device{}, Processes: []Process{}, Paths: []Path{}, Sessions: after.activity.Sessions, Nodes: []Node{}, Slow: after.activity.Slow,
	}
	moved := map[string][2]uint64{}
	known := map[[2]string][2]uint64{}
	for _, p := range before.status.Paths {
		known[[2]string{string(p.Path), string(p.Device)}] = [2]uint64{p.Bytes, p.Operations}
	}
	for _, p := range st.Paths {
		old := known[[2]string{string(p.Path), string(p.Device)}]
		r.Paths = append(r.Paths, Path{
			Path: string(p.Path), Device: string(p.Device), Bytes: p.Bytes, Operations: p.Operations, Errors: p.Errors,
			Rate: per.of(old[0], p.Bytes), OperationRate: per.of(old[1], p.Operations),
		})
		sum := moved[string(p.Device)]
		moved[string(p.Device)] = [2]uint64{sum[0] + old[0], sum[1] + p.Bytes}
	}
	for _, d := range st.Devices {
		m := moved[string(d.Name)]
		r.Devices = append(r.Devices, Device{Name: d.Name, Model: d.Model, Used: d.Used, Total: d.Total, Bytes: m[1], Rate: per.of(m[0], m[1])})
	}
	r.Processes = processes(before.activity.Processes, after.activity.Processes, per, users)
	if st.Cluster != nil {
		for _, n := range st.Cluster.Nodes {
			r.Nodes = append(r.Nodes, Node{Name: string(n.Name), Connected: n.Connected, Transport: n.Transport, Problem: n.Problem})
		}
	}
	return r
}

// processes adds rates to processes. The counters of one that was idle for long start again.
func processes(before, after []adminapi.Process, per rates, users *users) []Process {
	type key struct {
		pid, uid int
		session  bool
	}
	old := map[key]adminapi.Process{}
	for _, p := range before {
		old[key{p.PID, p.UID, p.Session}] = p
	}
	out := []Process{}
	for _, p := range after {
		was := old[key{p.PID, p.UID, p.Session}]
		out = append(out, Process{
			Process: p, User: users.name(p.UID),
			ReadRate: per.of(was.ReadBytes, p.ReadBytes), WriteRate: per.of(was.WrittenBytes, p.WrittenBytes),
		})
	}
	return out
}

// users remembers the names of users, whose lookup may take long.
type users struct{ names map[int]string }

func (u *users) name(uid int) string {
	if name, ok := u.names[uid]; ok {
		return name
	}
	if u.names == nil {
		u.names = map[int]string{}
	}
	name := strconv.Itoa(uid)
	if found, err := user.LookupId(name); err == nil {
		name = found.Username
	}
	u.names[uid] = name
	return name
}

// Once takes two samples, with a pause of interval between them.
func Once(ctx context.Context, from Source, interval time.Duration) (Report, error) {
	before, err := take(ctx, from)
	if err != nil {
		return Report{}, err
	}
	select {
	case <-time.After(interval):
	case <-ctx.Done():
		return Report{}, fmt.Errorf("between two samples: %w", ctx.Err())
	}
	after, err := take(ctx, from)
	return compare(before, after, &users{}), err
}
