package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// Options holds the values of all options of a mount. The table documents each one.
type Options struct {
	Devices       []string
	StateDir      string
	RuntimeDir    string
	Reserve       devices.Size
	AllowOther    bool
	Keep          bool
	NoHold        bool
	Passthrough   string
	ReadAhead     devices.Size
	MaxWrite      devices.Size
	MaxBackground int
	CacheTimeout  time.Duration
	ListViews     bool
	ChunkSize     devices.Size
	Slots         int
	MaxPinned     devices.Size
	MaxRegistered devices.Size
	RegisterFrom  devices.Size
	MountOptions  []string
	Limits        []string
	LogLevel      string
	LogFile       string
	AccessLog     string
	Metrics       string
	HTTP          string
	Debug         bool
	Topology      string
	NUMA          string

	// The options of a mount in a cluster; see Cluster.
	Node             string
	ClusterURL       string
	Peers            []string
	Listen           []string
	Advertise        []string
	SecretFile       string
	Plain            bool
	TLSCert          string
	TLSKey           string
	TLSCA            string
	Squash           string
	Lease            time.Duration
	NodeTimeout      time.Duration
	Transports       []string
	EtcdUser         string
	EtcdPasswordFile string
	EtcdCA           string
	EtcdCert         string
	EtcdKey          string
}

// mountWords returns the mount options that are passed to the kernel unchanged.
func mountWords() []string {
	return []string{"ro", "rw", "nosuid", "suid", "nodev", "dev", "noexec", "exec", "noatime", "atime", "nodiratime", "relatime", "strictatime", "lazytime", "sync", "async", "dirsync"}
}

// Validate reports every fault of the values at once, joined, each with the name of its
// option. families are the device families of the program; nil skips their checks.
func (o *Options) Validate(families []Family) error {
	var faults []error
	add := func(err error) { faults = append(faults, err) }
	add(oneOf("passthrough", o.Passthrough, "auto", "off"))
	add(oneOf("numa", o.NUMA, "auto", "off"))
	add(oneOf("log-level", o.LogLevel, "debug", "info", "warn", "error"))
	for _, w := range o.MountOptions {
		add(oneOf("option", w, mountWords()...))
	}
	faults = append(faults, checkDevices(o.Devices, families)...)
	if o.MaxWrite < 128*devices.KiB || o.MaxWrite%(4*devices.KiB) != 0 || o.MaxWrite > 16*devices.MiB {
		add(fmt.Errorf("max-write: %d bytes is not a multiple of 4 KiB from 128 KiB to 16 MiB; omit it for 1MiB", uint64(o.MaxWrite)))
	}
	if o.ReadAhead > devices.GiB {
		add(fmt.Errorf("read-ahead: %v is more than 1GiB; each open file may use that much pinned memory", o.ReadAhead))
	}
	if o.MaxBackground < 1 || o.MaxBackground > 65535 {
		add(fmt.Errorf("max-background: %d is not between 1 and 65535", o.MaxBackground))
	}
	for _, p := range []struct{ name, path string }{
		{"state-dir", o.StateDir}, {"runtime-dir", o.RuntimeDir}, {"log-file", o.LogFile}, {"access-log", o.AccessLog}, {"topology", o.Topology},
	} {
		if p.path != "" && !filepath.IsAbs(p.path) {
			add(fmt.Errorf("%s: %q is not an absolute path", p.name, p.path))
		}
	}
	add(checkListen("metrics", o.Metrics))
	add(checkListen("http", o.HTTP))
	t := o.Transport()
	add(t.Validate())
	_, err := o.Records()
	add(err)
	_, err = o.Cluster()
	add(err)
	if !o.IsCluster() {
		add(o.checkTimes()) // a wrong value is told at once, and not by the first mount of a cluster
	}
	return errors.Join(faults...)
}

// Transport returns the options of the engine.
func (o *Options) Transport() transport.Options {
	return transport.Options{
		ChunkSize: o.ChunkSize, Slots: o.Slots, MaxPinned: o.MaxPinned,
		MaxRegistered: o.MaxRegistered, RegisterFrom: max(o.RegisterFrom, 1), NoRegister: o.MaxRegistered == 0,
	}
}

// Atime returns the policy for access times: the last mount option about it wins.
func (o *Options) Atime() devices.Atime {
	policy := devices.AtimeRelative
	for _, w := range o.MountOptions {
		switch w {
		case "noatime":
			policy = devices.AtimeNever
		case "strictatime":
			policy = devices.AtimeAlways
		case "atime", "relatime":
			policy = devices.AtimeRelative
		}
	}
	return policy
}

// ReadOnly reports whether the mount refuses changes.
func (o *Options) ReadOnly() bool {
	ro := false
	for _, w := range o.MountOptions {
		switch w {
		case "ro":
			ro = true
		case "rw":
			ro = false
		}
	}
	return ro
}

func oneOf(name, value string, words ...string) error {
	if slices.Contains(words, value) {
		return nil
	}
	return fmt.Errorf("%s: %q is unknown; use %s%s", name, value, strings.Join(words, ", "), didYouMean(value, words))
}
