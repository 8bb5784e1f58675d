package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
)

// The defaults of a mount in a cluster.
const (
	// DefaultCluster is the name of a cluster whose URL contains none.
	DefaultCluster = "hmcfs"
	// DefaultLease is the time that other nodes still list a node that died.
	DefaultLease = 10 * time.Second
	// DefaultNodeTimeout bounds a request to another node.
	DefaultNodeTimeout = 10 * time.Second
)

// The bounds of the lease, which etcd counts in whole seconds.
const (
	minLease = 2 * time.Second
	maxLease = 10 * time.Minute
)

// Cluster holds the parsed options about other nodes.
type Cluster struct {
	// Node is the name of this node. If it is empty, the mount is not part of a cluster,
	// and all other fields are empty too.
	Node members.Name
	// Name distinguishes clusters that share an etcd.
	Name string
	// Endpoints are the addresses of etcd, HOST:PORT; empty if Peers lists the nodes.
	Endpoints []string
	// EndpointTLS is set if connections to etcd use TLS.
	EndpointTLS bool
	// Peers are the other nodes of a fixed list.
	Peers []members.Record
	// Listen holds the addresses at which other nodes connect, and Advertise those
	// announced to them.
	Listen    []control.Address
	Advertise []string
	// Transports are the permitted transports; empty means the default of comm.
	Transports []comm.Transport
	Squash     cluster.Squash
}

// IsCluster reports whether the mount is part of a cluster.
func (o *Options) IsCluster() bool { return o.Node != "" }

// Cluster parses the options about other nodes. The error contains every fault, each with
// the name of its option.
func (o *Options) Cluster() (Cluster, error) {
	if !o.IsCluster() {
		return Cluster{}, o.alone()
	}
	c := Cluster{Node: members.Name(o.Node), Name: DefaultCluster}
	var faults []error
	add := func(err error) { faults = append(faults, err) }
	err := c.Node.Validate()
	if err != nil {
		add(fmt.Errorf("node: %w", err))
	}
	if o.ClusterURL != "" {
		add(c.parseURL(o.ClusterURL))
		c.EndpointTLS = c.EndpointTLS || o.EtcdCA != "" || o.EtcdCert != ""
	}
	c.Peers, err = parsePeers(o.Peers, c.Node)
	add(err)
	switch {
	case o.ClusterURL != "" && len(o.Peers) > 0:
		add(errors.New("cluster, peer: use one of them; the list of nodes comes either from etcd or from the peers given"))
	case o.ClusterURL == "" && len(o.Peers) == 0:
		add(errors.New("node: name the other nodes: give either --cluster etcd://HOST:2379 or --peer NAME=ADDRESS for each of them"))
	}
	c.Listen, c.Advertise, err = o.addresses()
	add(err)
	c.Transports, err = parseTransports(o.Transports)
	add(err)
	c.Squash, err = ParseSquash(o.Squash)
	add(err)
	add(o.checkProofs())
	add(o.checkTimes())
	return c, errors.Join(faults...)
}

// checkTimes checks the times of a cluster.
func (o *Options) checkTimes() error {
	var faults []error
	if o.Lease < minLease || o.Lease > maxLease || o.Lease%time.Second != 0 {
		faults = append(faults, fmt.Errorf("lease: %v is not a whole number of seconds from %v to %v", o.Lease, minLease, maxLease))
	}
	if o.NodeTimeout < 100*time.Millisecond || o.NodeTimeout > time.Hour {
		faults = append(faults, fmt.Errorf("node-timeout: %v is not between 100ms and 1h", o.NodeTimeout))
	}
	return errors.Join(faults...)
}

// alone returns an error if options are set that need a node name.
func (o *Options) alone() error {
	var given []string
	for name, is := range map[string]bool{
		"cluster": o.ClusterURL != "", "peer": len(o.Peers) > 0, "listen": len(o.Listen) > 0, "advertise": len(o.Advertise) > 0,
	} {
		if is {
			given = append(given, name)
		}
	}
	if len(given) == 0 {
		return nil
	}
	slices.Sort(given)
	return fmt.Errorf("%s: this node needs a name too: give --node NAME", strings.Join(given, ", "))
}

// checkProofs checks the options for authentication between nodes and with etcd.
func (o *Options) checkProofs() error {
	var faults []error
	files := 0
	for _, f := range []string{o.TLSCert, o.TLSKey, o.TLSCA} {
		if f != "" {
			files++
		}
	}
	if files != 0 && files != 3 {
		faults = append(faults, errors.New("tls-cert, tls-key, tls-ca: give all three, or none"))
	}
	if files == 0 && o.SecretFile == "" {
		faults = append(faults, errors.New("node: nodes must authenticate each other: give --secret-file FILE, or --tls-cert, --tls-key and --tls-ca"))
	}
	if o.Plain && files != 0 {
		faults = append(faults, errors.New("plain, tls-cert: they exclude each other; leave out --plain to encrypt"))
	}
	if (o.EtcdCert == "") != (o.EtcdKey == "") {
		faults = append(faults, errors.New("etcd-cert, etcd-key: give both, or none"))
	}
	if (o.EtcdUser == "") != (o.EtcdPasswordFile == "") {
		faults = append(faults, errors.New("etcd-user, etcd-password-file: give both, or none"))
	}
	return errors.Join(faults...)
}

// parseURL reads etcd://HOST:PORT,HOST:PORT/NAME, or etcds:// for TLS.
func (c *Cluster) parseURL(text string) error {
	rest, plain := strings.CutPrefix(text, "etcd://")
	if !plain {
		if rest, c.EndpointTLS = strings.CutPrefix(text, "etcds://"); !c.EndpointTLS {
			return fmt.Errorf("cluster: %q: use etcd://HOST:2379,HOST:2379/NAME, or etcds:// for TLS", text)
		}
	}
	hosts, name, named := strings.Cut(strings.TrimSuffix(rest, "/"), "/")
	if named {
		c.Name = name
	}
	if members.Name(c.Name).Validate() != nil {
		return fmt.Errorf("cluster: the cluster's name in %q: use 1 to 63 letters, digits, '.', '_' and '-'", text)
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if strings.Contains(host, "@") {
			return errors.New("cluster: the URL must not contain a user or password; use --etcd-user and --etcd-password-file")
		}
		if err := checkHostPort(host, false); err != nil {
			return fmt.Errorf("cluster: %q: %w", text, err)
		}
		c.Endpoints = append(c.Endpoints, host)
	}
	return nil
}

// checkHostPort checks that text is HOST:PORT with a port from 1 to 65535; the host may be
// empty if anyHost is set.
func checkHostPort(text string, anyHost bool) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" && !anyHost {
		return fmt.Errorf("%q is not HOST:PORT", text)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q has no port from 1 to 65535", text)
	}
	return nil
}

// parsePeers reads NAME=ADDRESS. A name may occur several times, each time with another
// address.
func parsePeers(texts []string, self members.Name) ([]members.Record, error) {
	var out []members.Record
	var faults []error
	for _, text := range texts {
		name, addr, ok := strings.Cut(text, "=")
		if !ok {
			faults = append(faults, fmt.Errorf("peer: %q: use NAME=HOST:PORT", text))
			continue
		}
		n := members.Name(name)
		err := n.Validate()
		if err == nil {
			err = checkAddress(addr)
		}
		if err == nil && n == self {
			err = fmt.Errorf("%s is this node itself", name)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("peer: %w", err))
			continue
		}
		at := slices.IndexFunc(out, func(r members.Record) bool { return r.Name == n })
		if at < 0 {
			out = append(out, members.Record{Name: n})
			at = len(out) - 1
		}
		out[at].Addresses = append(out[at].Addresses, addr)
	}
	return out, errors.Join(faults...)
}

// checkAddress checks that other nodes can connect to an address.
func checkAddress(text string) error {
	a, err := control.ParseAddress(text)
	if err != nil || a.Network == control.Unix {
		return err
	}
	if err = checkHostPort(a.Addr, false); err != nil {
		return err
	}
	if isAnyHost(a) {
		return fmt.Errorf("%q stands for every address of a machine; give one to connect to", text)
	}
	return nil
}

// isAnyHost reports whether an address stands for all interfaces.
func isAnyHost(a control.Address) bool {
	if a.Network == control.Unix {
		return false
	}
	host, _, err := net.SplitHostPort(a.Addr)
	if err != nil || host == "" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

// addresses returns the addresses to listen on and those to announce to other nodes.
func (o *Options) addresses() (listen []control.Address, advertise []string, err error) {
	var faults []error
	if len(o.Listen) == 0 {
		faults = append(faults, errors.New("listen: give an address on which to accept other nodes: --listen HOST:PORT"))
	}
	for _, text := range o.Listen {
		a, aerr := control.ParseAddress(text)
		if aerr == nil && a.Network == control.TCP {
			aerr = checkHostPort(a.Addr, true)
		}
		switch {
		case aerr != nil:
			faults = append(faults, fmt.Errorf("listen: %w", aerr))
			continue
		case isAnyHost(a) && len(o.Advertise) == 0:
			faults = append(faults, fmt.Errorf("listen: %q stands for every address of this machine; name the one that others connect to: --advertise HOST:PORT", text))
		}
		listen = append(listen, a)
		advertise = append(advertise, text)
	}
	if len(o.Advertise) > 0 {
		advertise = o.Advertise
	}
	for _, text := range o.Advertise {
		if aerr := checkAddress(text); aerr != nil {
			faults = append(faults, fmt.Errorf("advertise: %w", aerr))
		}
	}
	return listen, slices.Clone(advertise), errors.Join(faults...)
}

func parseTransports(texts []string) ([]comm.Transport, error) {
	var out []comm.Transport
	var faults []error
	for _, text := range texts {
		faults = append(faults, oneOf("transport", text, string(comm.RDMA), string(comm.SHM), string(comm.UCX), string(comm.TCP)))
		out = append(out, comm.Transport(text))
	}
	return out, errors.Join(faults...)
}

// ParseSquash reads root, none or all; root and all may be followed by the user to map to:
// root=UID:GID.
func ParseSquash(text string) (cluster.Squash, error) {
	const nobody = 65534
	word, who, named := strings.Cut(text, "=")
	s := cluster.Squash{Mode: cluster.SquashMode(word), UID: nobody, GID: nobody}
	switch s.Mode {
	case cluster.SquashRoot, cluster.SquashAll:
	case cluster.SquashNone:
		if named {
			return s, errors.New("squash: none maps no users, so it takes no UID:GID")
		}
	default:
		return s, fmt.Errorf("squash: %q is unknown; use root, none or all, and root=UID:GID or all=UID:GID to choose the user they are mapped to", text)
	}
	if !named {
		return s, nil
	}
	uid, gid, both := strings.Cut(who, ":")
	if !both {
		gid = uid
	}
	u, uerr := strconv.ParseUint(uid, 10, 32)
	g, gerr := strconv.ParseUint(gid, 10, 32)
	if uerr != nil || gerr != nil {
		return s, fmt.Errorf("squash: %q: use UID:GID, two numbers", text)
	}
	if u == 0 || g == 0 {
		return s, fmt.Errorf("squash: %q: no user can be mapped to root or its group; with --squash none, root of any node is root here", text)
	}
	s.UID, s.GID = uint32(u), uint32(g)
	return s, nil
}
