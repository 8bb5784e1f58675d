package config_test

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
)

func clustered(change func(*config.Options)) *config.Options {
	o := &config.Options{
		Node: "a", ClusterURL: "etcd://h1:2379,[::1]:2380/lab", Listen: []string{"10.0.0.1:7070", "unix:/run/a"}, SecretFile: "f",
		Squash: "root", Lease: 10 * time.Second, NodeTimeout: time.Second, Transports: []string{"shm", "tcp"},
	}
	change(o)
	return o
}

func TestCluster(t *testing.T) {
	got, err := clustered(func(*config.Options) {}).Cluster()
	want := config.Cluster{
		Node: "a", Name: "lab", Endpoints: []string{"h1:2379", "[::1]:2380"},
		Listen:    []control.Address{{Network: control.TCP, Addr: "10.0.0.1:7070"}, {Network: control.Unix, Addr: "/run/a"}},
		Advertise: []string{"10.0.0.1:7070", "unix:/run/a"}, Transports: []comm.Transport{comm.SHM, comm.TCP},
		Squash: cluster.Squash{Mode: cluster.SquashRoot, UID: 65534, GID: 65534},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	got, err = clustered(func(o *config.Options) {
		o.ClusterURL, o.Peers = "", []string{"b=10.0.0.2:7070", "c=h:1", "b=unix:/run/b"}
		o.Listen, o.Advertise = []string{":7070"}, []string{"h:7070"}
	}).Cluster()
	peers := []members.Record{{Name: "b", Addresses: []string{"10.0.0.2:7070", "unix:/run/b"}}, {Name: "c", Addresses: []string{"h:1"}}}
	if err != nil || !reflect.DeepEqual(got.Peers, peers) || got.Name != config.DefaultCluster || got.Advertise[0] != "h:7070" || got.Endpoints != nil {
		t.Errorf("a static list: %+v, %v", got, err)
	}
	if got, err = (&config.Options{}).Cluster(); err != nil || !reflect.DeepEqual(got, config.Cluster{}) {
		t.Errorf("no cluster: %+v, %v", got, err)
	}
}

func TestClusterTLS(t *testing.T) {
	for url, ca := range map[string]string{"etcds://h:1": "", "etcd://h:1/": "ca"} {
		got, err := clustered(func(o *config.Options) { o.ClusterURL, o.EtcdCA = url, ca }).Cluster()
		if err != nil || !got.EndpointTLS || got.Name != config.DefaultCluster {
			t.Errorf("%s: %+v, %v", url, got, err)
		}
	}
}

// Each fault is told with the option that it is in.
func TestClusterFaults(t *testing.T) {
	for want, change := range map[string]func(*config.Options){
		"node: ":            func(o *config.Options) { o.Node = ".a" },
		"cluster: ":         func(o *config.Options) { o.ClusterURL = "etcd://" },
		"cluster: the":      func(o *config.Options) { o.ClusterURL = "etcd://h:1/a/b" },
		"cluster, peer: ":   func(o *config.Options) { o.Peers = []string{"b=h:1"} },
		"either --cluster":  func(o *config.Options) { o.ClusterURL = "" },
		"peer: ":            func(o *config.Options) { o.Peers = []string{"b=[::]:1"} },
		"listen: ":          func(o *config.Options) { o.Listen = []string{"0.0.0.0:7070"} },
		"advertise: ":       func(o *config.Options) { o.Advertise = []string{":7070"} },
		"--secret-file":     func(o *config.Options) { o.SecretFile = "" },
		"squash: ":          func(o *config.Options) { o.Squash = "root=4294967296" },
		"lease: ":           func(o *config.Options) { o.Lease = 2500 * time.Millisecond },
		"node-timeout: ":    func(o *config.Options) { o.NodeTimeout = 0 },
		"transport: ":       func(o *config.Options) { o.Transports = []string{"udp"} },
		"etcd-user, ":       func(o *config.Options) { o.EtcdUser = "root" },
		"tls-cert, tls-key": func(o *config.Options) { o.TLSCA = "ca" },
	} {
		_, err := clustered(change).Cluster()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestSquash(t *testing.T) {
	for text, want := range map[string]cluster.Squash{
		"root":       {Mode: cluster.SquashRoot, UID: 65534, GID: 65534},
		"none":       {Mode: cluster.SquashNone, UID: 65534, GID: 65534},
		"all=1000":   {Mode: cluster.SquashAll, UID: 1000, GID: 1000},
		"root=5:007": {Mode: cluster.SquashRoot, UID: 5, GID: 7},
	} {
		if got, err := config.ParseSquash(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "nobody", "none=1:1", "all=", "all=a:b", "all=1:2:3", "all=0", "root=1:0"} {
		if got, err := config.ParseSquash(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

// The files of docs/deploy are right.
func TestDeployedOptions(t *testing.T) {
	text, err := os.ReadFile("../../../docs/deploy/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, inPod, _ := strings.Cut(string(text), "config.yaml: |\n")
	inPod, _, _ = strings.Cut(inPod, "---")
	files := map[string]string{"pod": strings.ReplaceAll(inPod, "\n    ", "\n")[4:]}
	if text, err = os.ReadFile("../../../docs/deploy/config.yaml"); err != nil {
		t.Fatal(err)
	}
	files["machine"] = string(text)
	for name := range files {
		s, err := config.Resolve(config.Inputs{
			Files: []config.File{{Path: name, Required: true}}, ReadFile: reader(files),
			Getenv: environment(map[string]string{"HMCFS_NODE": "gpu-07", "HMCFS_LISTEN": ":7070", "HMCFS_ADVERTISE": "gpu-07:7070"}),
		})
		if err != nil || s.ClusterURL == "" || s.SecretFile == "" || !s.AllowOther {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}
