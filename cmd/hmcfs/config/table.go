package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/transport"
)

// Option is one row of the table.
type Option struct {
	// Name is the flag without its dashes: "read-ahead".
	Name string
	// Short is the flag's one letter, empty for most.
	Short string
	// Kind is the type of the value: text, list, bool, size, number, time or word.
	Kind string
	// Default is the default as a user would write it; empty if it is computed, which Doc
	// then explains.
	Default string
	// Doc describes the option in one or two sentences.
	Doc string
	// OfMount is set for an option that concerns only the mount, and not a daemon without one.
	OfMount bool

	set func(o *Options, texts []string) error
	get func(o *Options) any
}

// Key returns the option's key in the config file, which is also its word for -o.
func (p *Option) Key() string { return strings.ReplaceAll(p.Name, "-", "_") }

// Env returns the option's environment variable.
func (p *Option) Env() string {
	return "HMCFS_" + strings.ToUpper(p.Key())
}

// IsList reports whether the option may be given several times.
func (p *Option) IsList() bool { return p.Kind == kindList }

// IsBool reports whether the option may be given without a value.
func (p *Option) IsBool() bool { return p.Kind == kindBool }

// Value returns the option's value, for JSON: a time as text.
func (p *Option) Value(o *Options) any {
	if d, ok := p.get(o).(time.Duration); ok {
		return d.String()
	}
	return p.get(o)
}

// Show returns the option's value as a user would write it.
func (p *Option) Show(o *Options) string {
	switch v := p.get(o).(type) {
	case []string:
		return strings.Join(v, " ")
	case devices.Size:
		return showSize(v)
	default:
		return fmt.Sprint(v)
	}
}

const (
	kindText   = "text"
	kindList   = "list"
	kindBool   = "bool"
	kindSize   = "size"
	kindNumber = "number"
	kindTime   = "time"
	kindWords  = "word"
)

// Table returns every option, in the order in which people read them.
func Table() []*Option {
	return slices.Concat(localTable(), clusterTable())
}

// localTable returns the options that are not about a cluster.
func localTable() []*Option {
	return []*Option{
		list("device", func(o *Options) *[]string { return &o.Devices },
			"Device to mount, such as host,size=4GiB or opencl:0,size=2GiB or sim:0,size=1GiB, or by its name: cuda0,size=2GiB; may be given several times. The host device is always included. Default: host and every accelerator found, but no simulated ones."),
		text("state-dir", kindText, "", func(o *Options) *string { return &o.StateDir },
			"Directory of the metadata and the log. Default: one for each mount point below $XDG_STATE_HOME/hmcfs, or below /var/lib/hmcfs for root."),
		text("runtime-dir", kindText, "", func(o *Options) *string { return &o.RuntimeDir },
			"Directory of the admin socket and the host tier. Default: one for each mount point below $XDG_RUNTIME_DIR/hmcfs, or below /run/hmcfs for root."),
		size("reserve", badgerkv.DefaultReserve, func(o *Options) *devices.Size { return &o.Reserve },
			"Free space to preserve in the file system of the state directory: with less, changes of names and attributes fail with ENOSPC, while writing data, reading, removing and unmounting still work."),
		flag("allow-other", func(o *Options) *bool { return &o.AllowOther },
			"Give other users access, subject to modes and owners. An unprivileged user needs user_allow_other in /etc/fuse.conf."),
		flag("keep", func(o *Options) *bool { return &o.Keep },
			"On unmount, leave the host tier and all records for the next mount instead of removing them."),
		ofMount(flag("no-hold", func(o *Options) *bool { return &o.NoHold },
			"Do without the small process that keeps the mount while no daemon lives, and starts the daemon again if it dies: its death ends the mount.")),
		ofMount(text("passthrough", kindWords, "auto", func(o *Options) *string { return &o.Passthrough },
			"auto lets the kernel serve host files directly where it can; off serves them from the daemon.")),
		size("read-ahead", fs.DefaultReadAhead, func(o *Options) *devices.Size { return &o.ReadAhead },
			"How many bytes ahead of a sequential reader of a device file are copied to the host; 0 disables read-ahead."),
		ofMount(size("max-write", fs.DefaultMaxWrite, func(o *Options) *devices.Size { return &o.MaxWrite },
			"Largest request of the kernel, a multiple of 4 KiB; above 1 MiB the kernel needs a larger fs.fuse.max_pages_limit.")),
		ofMount(number("max-background", fs.DefaultMaxBackground, func(o *Options) *int { return &o.MaxBackground },
			"Number of background requests that the kernel keeps in flight.")),
		ofMount(duration("cache-timeout", fs.DefaultCacheTimeout, func(o *Options) *time.Duration { return &o.CacheTimeout },
			"How long the kernel caches names and attributes.")),
		flag("list-views", func(o *Options) *bool { return &o.ListViews },
			"List the directory FILE.tensors beside each .safetensors and .npy file; without this option it can be opened by name but is not listed."),
		size("chunk-size", transport.DefaultChunkSize, func(o *Options) *devices.Size { return &o.ChunkSize },
			"Size of one piece of a copy that is staged through the host, a multiple of 4 KiB."),
		number("slots", transport.DefaultSlots, func(o *Options) *int { return &o.Slots },
			"Number of pieces of one staged copy in flight, from 3 to 64."),
		size("max-pinned", transport.DefaultMaxPinned, func(o *Options) *devices.Size { return &o.MaxPinned },
			"Maximum size of the pinned buffers that the daemon holds for copies."),
		size("max-registered", transport.DefaultMaxRegistered, func(o *Options) *devices.Size { return &o.MaxRegistered },
			"Maximum size of the host files that are registered with cards, which then copy from and to them directly; with 0, all such copies go through pinned buffers."),
		size("register-from", transport.DefaultRegisterFrom, func(o *Options) *devices.Size { return &o.RegisterFrom },
			"Smallest copy between a host file and a card for which the file is registered."),
		text("topology", kindText, "", func(o *Options) *string { return &o.Topology },
			"File that describes how the devices are connected: a topology.json, or a rank table or topology file of HCCL. Default: as the kernel and the devices report."),
		text("numa", kindWords, "auto", func(o *Options) *string { return &o.NUMA },
			"auto keeps threads that move bytes of a card on the processors of its NUMA node, if there are several nodes; off leaves that to the kernel."),
		ofMount(words("option", "o", func(o *Options) *[]string { return &o.MountOptions },
			"Mount options as in fstab, separated by commas: ro, nosuid, nodev, noexec, noatime, strictatime, or any option of this table by its key "+
				`(allow_other, state_dir=DIR, device="sim:0,size=1GiB" with the quotes).`)),
		list("limit", func(o *Options) *[]string { return &o.Limits },
			"Limit on the records of one user or one inode, as NAME=VALUE: user-names, user-xattr-bytes, inode-xattrs or inode-xattr-bytes; may be given several times. Default: user-names=500000, user-xattr-bytes=64MiB, inode-xattrs=256, inode-xattr-bytes=256KiB. The limits on users do not apply to root."),
		text("log-level", kindWords, "info", func(o *Options) *string { return &o.LogLevel },
			"Least severe level of messages to log: debug, info, warn or error."),
		text("log-file", kindText, "", func(o *Options) *string { return &o.LogFile },
			"Log file of the daemon. Default: hmcfs.log in the state directory, or standard error with -f."),
		text("access-log", kindText, "", func(o *Options) *string { return &o.AccessLog },
			"File that gets a line of JSON for each call of a session: time, verb, keys, failed keys, bytes, microseconds, outcome, user and process. Default: none."),
		text("metrics", kindText, "", func(o *Options) *string { return &o.Metrics },
			"Address, as HOST:PORT, at which the metrics of the admin socket are served over TCP, to everyone who can connect; :PORT is one of this machine alone, 0.0.0.0:PORT one of every interface. Default: none."),
		text("http", kindText, "", func(o *Options) *string { return &o.HTTP },
			"Address, as HOST:PORT, at which a page shows the mount, read-only, to those who have its token: hmcfs page prints both. :PORT is one of this machine alone. The traffic is not encrypted. Default: none."),
		flag("debug", func(o *Options) *bool { return &o.Debug },
			"Log every request of the kernel, and serve /debug/pprof/ on the admin socket."),
	}
}

// clusterTable returns the options of a mount in a cluster.
func clusterTable() []*Option {
	return []*Option{
		text("node", kindText, "", func(o *Options) *string { return &o.Node },
			"Join a cluster under this name, made of letters, digits, '.', '_' and '-': the other nodes appear here under nodes/, and this one there as nodes/NAME. Default: no cluster."),
		text("cluster", kindText, "", func(o *Options) *string { return &o.ClusterURL },
			"etcd with the list of nodes and their keys: etcd://HOST:2379,HOST:2379/NAME, or etcds:// for TLS. NAME, "+DefaultCluster+" by default, distinguishes clusters that share an etcd."),
		list("peer", func(o *Options) *[]string { return &o.Peers },
			"Another node, as NAME=HOST:PORT, instead of --cluster; give one for every other node, and do so on every node."),
		list("listen", func(o *Options) *[]string { return &o.Listen },
			"Address on which to accept other nodes: HOST:PORT, [IPv6]:PORT or unix:PATH; may be given several times."),
		list("advertise", func(o *Options) *[]string { return &o.Advertise },
			"Addresses to announce to other nodes, the best first; may be given several times. Default: those of --listen."),
		text("secret-file", kindText, "", func(o *Options) *string { return &o.SecretFile },
			"File with the secret, of 16 random bytes or more, that all nodes share. Without --tls-cert it encrypts the TCP traffic between nodes."),
		flag("plain", func(o *Options) *bool { return &o.Plain },
			"Don't encrypt traffic between nodes after the handshake; only for a network that nobody else can reach. Set it on all nodes. Without it RDMA and UCX, which don't encrypt, are not used over TCP."),
		text("tls-cert", kindText, "", func(o *Options) *string { return &o.TLSCert },
			"This node's certificate for other nodes (PEM); its DNS name must be the node's name."),
		text("tls-key", kindText, "", func(o *Options) *string { return &o.TLSKey },
			"Key of that certificate (PEM)."),
		text("tls-ca", kindText, "", func(o *Options) *string { return &o.TLSCA },
			"Certificate authorities that sign the certificates of other nodes (PEM)."),
		text("squash", kindText, string(cluster.SquashRoot), func(o *Options) *string { return &o.Squash },
			"Which users of other nodes do not keep their user ID here: root, all or none. root=UID:GID and all=UID:GID set the user they are mapped to, 65534:65534 by default."),
		duration("lease", DefaultLease, func(o *Options) *time.Duration { return &o.Lease },
			"How long other nodes still list a node that died, in whole seconds."),
		duration("node-timeout", DefaultNodeTimeout, func(o *Options) *time.Duration { return &o.NodeTimeout },
			"Timeout of a request to another node, and of a transfer without progress."),
		list("transport", func(o *Options) *[]string { return &o.Transports },
			"Transport between nodes: rdma, shm, ucx or tcp; may be given several times. Default: all but ucx. A peer that uses rdma or ucx is trusted with this process's memory."),
		text("etcd-user", kindText, "", func(o *Options) *string { return &o.EtcdUser },
			"User name for etcd, if it requires one."),
		text("etcd-password-file", kindText, "", func(o *Options) *string { return &o.EtcdPasswordFile },
			"File with that user's password."),
		text("etcd-ca", kindText, "", func(o *Options) *string { return &o.EtcdCA },
			"Certificate authorities that sign etcd's certificate (PEM); implies TLS. Default: those of the system."),
		text("etcd-cert", kindText, "", func(o *Options) *string { return &o.EtcdCert },
			"Client certificate for etcd (PEM); implies TLS."),
		text("etcd-key", kindText, "", func(o *Options) *string { return &o.EtcdKey },
			"Key of that certificate (PEM)."),
	}
}

// scalar returns an option with one value, which parse reads.
func scalar[T any](name, kind, byDefault string, parse func(string) (T, error), field func(*Options) *T, doc string) *Option {
	return &Option{
		Name: name, Kind: kind, Default: byDefault, Doc: doc,
		set: func(o *Options, texts []string) error {
			v, err := parse(texts[len(texts)-1])
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			*field(o) = v
			return nil
		},
		get: func(o *Options) any { return *field(o) },
	}
}

// ofMount marks an option that concerns only the mount.
func ofMount(p *Option) *Option {
	p.OfMount = true
	return p
}

func text(name, kind, byDefault string, field func(*Options) *string, doc string) *Option {
	return scalar(name, kind, byDefault, func(t string) (string, error) { return t, nil }, field, doc)
}

func flag(name string, field func(*Options) *bool, doc string) *Option {
	return scalar(name, kindBool, "false", parseBool, field, doc)
}

func size(name string, byDefault devices.Size, field func(*Options) *devices.Size, doc string) *Option {
	return scalar(name, kindSize, showSize(byDefault), devices.ParseSize, field, doc)
}

func number(name string, byDefault int, field func(*Options) *int, doc string) *Option {
	return scalar(name, kindNumber, strconv.Itoa(byDefault), parseNumber, field, doc)
}

func duration(name string, byDefault time.Duration, field func(*Options) *time.Duration, doc string) *Option {
	return scalar(name, kindTime, byDefault.String(), parseTime, field, doc)
}

func list(name string, field func(*Options) *[]string, doc string) *Option {
	return &Option{
		Name: name, Kind: kindList, Doc: doc,
		set: func(o *Options, t []string) error { *field(o) = t; return nil },
		get: func(o *Options) any { return append([]string{}, *field(o)...) },
	}
}

// words returns an option that is a list whose values may contain several words separated
// by commas.
func words(name, short string, field func(*Options) *[]string, doc string) *Option {
	p := list(name, field, doc)
	p.Short = short
	p.set = func(o *Options, texts []string) error {
		all := []string{}
		for _, t := range texts {
			split, err := SplitMountOptions(t)
			if err != nil {
				return err
			}
			all = append(all, split...)
		}
		*field(o) = all
		return nil
	}
	return p
}

func parseNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", text)
	}
	return n, nil
}

func parseTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a time such as 1s or 500ms", text)
	}
	return d, nil
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", text)
}

// showSize formats a size so that ParseSize returns the same number.
func showSize(s devices.Size) string {
	for _, u := range []struct {
		unit devices.Size
		name string
	}{{devices.TiB, "TiB"}, {devices.GiB, "GiB"}, {devices.MiB, "MiB"}, {devices.KiB, "KiB"}} {
		if s >= u.unit && s%u.unit == 0 {
			return strconv.FormatUint(uint64(s/u.unit), 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(s), 10)
}
