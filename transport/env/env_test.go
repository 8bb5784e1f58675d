package env

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/fusion"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/job"
)

func from(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func parse(t *testing.T, vars map[string]string) *Settings {
	t.Helper()
	s, err := Parse(from(vars))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEveryRow: the ends of a range are accepted, values beyond are not.
func TestEveryRow(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ right, wrong []string }{
		"BUFFSIZE":                {[]string{"1", "200", "65536"}, []string{"0", "65537", "-1", "+1", "1.5", "200M", " 1", "0x10", "1e3", "99999999999999999999"}},
		"DETERMINISTIC":           {[]string{"false", "true", "strict"}, []string{"False", "1", "strictly", "0"}},
		"OP_EXPANSION_MODE":       {[]string{"AI_CPU", "AIV", "HOST", "HOST_TS", "CCU_MS", "CCU_SCHED"}, []string{"CPU", "host", "AIV,HOST"}},
		"CONNECT_TIMEOUT":         {[]string{"120", "7200"}, []string{"119", "7201", "120s", "120.0"}},
		"EXEC_TIMEOUT":            {[]string{"0", "0.01", "1836", "1836.5", "1836.55", "17340", "2147483647"}, []string{"-1", "1836.555", "2147483648", "2147483647.01", "1.", ".5", "1,5", "inf"}},
		"RDMA_TC":                 {[]string{"0", "4", "132", "252"}, []string{"-4", "255", "256", "133", "x"}},
		"RDMA_SL":                 {[]string{"0", "7"}, []string{"-1", "8"}},
		"RDMA_TIMEOUT":            {[]string{"5", "24"}, []string{"4", "25"}},
		"RDMA_RETRY_CNT":          {[]string{"1", "7"}, []string{"0", "8"}},
		"RDMA_QPS_PER_CONNECTION": {[]string{"1", "32"}, []string{"0", "33"}},
		"MULTI_QP_THRESHOLD":      {[]string{"1", "8192"}, []string{"0", "8193", "512K"}},
		"IF_IP":                   {[]string{"10.0.0.1", "fe80::1"}, []string{"10.0.0", "host", "10.0.0.1:80"}},
		"SOCKET_IFNAME":           {[]string{"eth0", "^lo,docker0", "=eth0,eth1"}, []string{"^", "eth0,", "=^eth0", "a name", "much-too-long-for-linux"}},
		"SOCKET_FAMILY":           {[]string{"AF_INET", "AF_INET6"}, []string{"AF_UNIX", "4"}},
		"IF_BASE_PORT":            {[]string{"1024", "65520"}, []string{"1023", "65521"}},
		"HOST_SOCKET_PORT_RANGE":  {[]string{"auto", "60000", "60000-60015", "60000-60015,60100"}, []string{"60015-60000", "60000-60015,60010", "60000,60000", "0-5", "65536", "a-b", "60000-", "autos", "1-2-3"}},
		"NPU_SOCKET_PORT_RANGE":   {[]string{"auto", "61000-61010"}, []string{"auto,1", ","}},
		"WHITELIST_DISABLE":       {[]string{"1"}, []string{"0", "2"}},
		"WHITELIST_FILE":          {[]string{"/etc/list"}, []string{" "}},
		"OP_RETRY_ENABLE":         {[]string{"L0:0,L1:0,L2:0", "L1:1", "L2:1,L0:0"}, []string{"L0:2", "L3:1", "L0:1,L0:1", "L0", "1", "L0:1,"}},
		"OP_RETRY_PARAMS":         {[]string{"MaxCnt:1,HoldTime:5000,IntervalTime:1000", "MaxCnt:10", "HoldTime:0,IntervalTime:60000"}, []string{"MaxCnt:0", "MaxCnt:11", "HoldTime:-1", "HoldTime:60001", "IntervalTime:60001", "maxcnt:1", "MaxCnt:1,MaxCnt:2"}},
		"DFS_CONFIG": {
			[]string{"cluster_heartbeat:on,stuck_detection:on,inconsistent_check:first,connection_fault_detection_time:20,task_monitor_interval:0", "inconsistent_check:off"},
			[]string{"inconsistent_check:never", "stuck_detection:1", "what:on", "stuck_detection=on", "stuck_detection:on,stuck_detection:on"},
		},
		"DEBUG_CONFIG":      {[]string{"ALG", "ALG,TASK,RESOURCE", "^TASK"}, []string{"alg", "ALG;TASK", "^", "ALG,^TASK"}},
		"ENTRY_LOG_ENABLE":  {[]string{"0", "1"}, []string{"2", "true"}},
		"DIAGNOSE_ENABLE":   {[]string{"0", "1"}, []string{"2"}},
		"DETOUR":            {[]string{"0", "1"}, []string{"2", "detour:1"}},
		"INTRA_PCIE_ENABLE": {[]string{"1"}, []string{"0", "2", "yes"}},
		"INTRA_ROCE_ENABLE": {[]string{"1"}, []string{"0", "2"}},
		"ALGO": {
			[]string{
				"level0:NA;level1:ring", "level0:NA;level1:H-D_R;level2:NB;level3:null", "level1:NHR",
				"allreduce=level0:NA;level1:ring/allgather=level0:NA;level1:NHR", "alltoall=level0:NA;level1:pairwise/others=level1:ring",
				"reducescatter=level1:AHC_BROKE/sendrecv=level0:fullmesh",
			},
			[]string{
				"=level0:NA/level1:pairwise", "level0:NA/level1:pairwise", "alltoall=level0:NA&level1:pairwise;",
				"allreduce=level0:Yes;level1:pairwise", "not_op=level0:NA;level1:ring", "level0:NA;level0:ring",
				"allreduce=level1:ring/level1:ring", "level1:ring/allreduce=level1:ring", "allreduce=level1:ring/allreduce=level1:NHR",
				"level4:ring", "level1", "level1:", ";", "ring", "allreduce=ring", "level1:ring;", ";level1:ring", "allreduce=", "/",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, text := range x.right {
				if _, err := Parse(from(map[string]string{"HCCL_" + name: text})); err != nil {
					t.Errorf("%q: %v", text, err)
				}
			}
			for _, text := range x.wrong {
				_, err := Parse(from(map[string]string{"HCCL_" + name: text}))
				want := "EI0001: Value " + text + " for environment variable HCCL_" + name + " is invalid. Expected value: "
				if !errors.Is(err, ErrValue) || !strings.HasPrefix(err.Error(), want) {
					t.Errorf("%q: %v", text, err)
				}
			}
		})
	}
}

func TestPlugin(t *testing.T) {
	t.Parallel()
	if _, err := Parse(from(map[string]string{"HCOMM_NIC_PLUGIN_SO": "/tmp/nic.so"})); !errors.Is(err, ErrValue) {
		t.Errorf("a plugin: %v", err)
	}
}

// TestAllFaults: one error reports everything that is wrong.
func TestAllFaults(t *testing.T) {
	t.Parallel()
	_, err := Parse(from(map[string]string{"HCCL_BUFFSIZE": "0", "HMCFS_ALGO": "rings", "HMCFS_FUSION_WINDOW": "x"}))
	if err == nil || strings.Count(err.Error(), "EI0001") != 3 {
		t.Errorf("not all faults: %v", err)
	}
}

func TestIntra(t *testing.T) {
	t.Parallel()
	const shm, network = "HCCL_INTRA_PCIE_ENABLE", "HCCL_INTRA_ROCE_ENABLE"
	for _, x := range []struct {
		shm, network string
		streams      bool
		wrong        bool
	}{
		{"", "", false, false},
		{"1", "", false, false},
		{"", "1", true, false},
		{"1", "0", false, false},
		{"0", "1", true, false},
		{"0", "0", false, false},
		{"1", "1", false, true},
		{"0", "", false, true},
		{"", "0", false, true},
	} {
		s, err := Parse(from(map[string]string{shm: x.shm, network: x.network}))
		if x.wrong {
			if !errors.Is(err, ErrValue) {
				t.Errorf("%q and %q: %v", x.shm, x.network, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q and %q: %v", x.shm, x.network, err)
			continue
		}
		if have := s.Fabric(fabric.Options{}).Streams; have != x.streams {
			t.Errorf("%q and %q: streams is %t", x.shm, x.network, have)
		}
		if have := s.Job(job.Options{Backend: job.Auto}).Backend == job.TCP; have != x.streams {
			t.Errorf("%q and %q: the job's backend is TCP: %t", x.shm, x.network, have)
		}
		if have := s.Job(job.Options{Backend: job.SHM}).Backend; have != job.SHM {
			t.Errorf("%q and %q: the backend that was given is %s now", x.shm, x.network, have)
		}
		if warned := len(s.Warnings()) > 0; warned != (x.shm == "0" && x.network == "0") {
			t.Errorf("%q and %q: %v", x.shm, x.network, s.Warnings())
		}
	}
}

func TestAlgo(t *testing.T) {
	t.Parallel()
	type kinds = map[plan.Kind]plan.Algorithm
	for text, want := range map[string]struct {
		all  plan.Algorithm
		each kinds
	}{
		"HCCL_ALGO level0:NA;level1:ring":       {plan.Ring, kinds{}},
		"HCCL_ALGO level0:fullmesh;level1:NA":   {plan.Pairwise, kinds{}},
		"HCCL_ALGO level0:NA":                   {"", kinds{}},
		"HCCL_ALGO level1:NB":                   {plan.NHR, kinds{plan.Broadcast: plan.Binomial, plan.Reduce: plan.Binomial}},
		"HMCFS_ALGO doubling":                   {plan.Doubling, kinds{}},
		"HMCFS_ALGO allreduce=chain/others=nhr": {plan.NHR, kinds{plan.AllReduce: plan.Chain}},
		"HCCL_ALGO allreduce=level1:NA/others=level1:NB": {
			plan.NHR, kinds{plan.AllReduce: "", plan.Broadcast: plan.Binomial, plan.Reduce: plan.Binomial},
		},
		"HMCFS_ALGO reduce-scatter=level1:H-D_R / allgather=ring": {"", kinds{plan.ReduceScatter: plan.Doubling, plan.AllGather: plan.Ring}},
	} {
		name, value, _ := strings.Cut(text, " ")
		s := parse(t, map[string]string{name: value})
		if a, own := want.each[plan.Reduce]; own && s.Algorithm(plan.Reduce) != a || s.Algorithm(plan.AllToAll) != want.all {
			t.Errorf("%s: %q and %q", text, s.Algorithm(plan.Reduce), s.Algorithm(plan.AllToAll))
		}
		o := s.Options(collective.Options{})
		if o.Algorithm != want.all || !maps.Equal(o.Algorithms, want.each) {
			t.Errorf("%s: %q and %v", text, o.Algorithm, o.Algorithms)
		}
	}
}

// TestPrecedence: program, group, environment, default; our name before HCOMM's.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	s := parse(t, map[string]string{
		"HMCFS_BUFFSIZE": "16", "HCCL_BUFFSIZE": "32", "HCCL_EXEC_TIMEOUT": "60.25", "HCCL_DFS_CONFIG": "inconsistent_check:on,stuck_detection:off",
		"HMCFS_ALGO": "ring", "HMCFS_OP_RETRY_PARAMS": "MaxCnt:4", "HMCFS_DETERMINISTIC": "strict", "HMCFS_KEEP_SOURCE": "1",
	})
	g, err := s.With("group dp", map[string]string{"algo": "nhr", "exec_timeout": "5", "op_retry_enable": "L0:0"})
	if err != nil {
		t.Fatal(err)
	}
	o := g.Options(collective.Options{Check: collective.CheckOff})
	want := collective.Options{
		Algorithm: plan.NHR, Algorithms: map[plan.Kind]plan.Algorithm{}, Strict: true, KeepSource: true, Check: collective.CheckOff,
		Buffer: 16 * devices.MiB, Timeout: 5 * time.Second, Stuck: forever, Retry: -1,
	}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, not %+v", o, want)
	}
	if o := s.Options(collective.Options{Timeout: time.Hour}); o.Timeout != time.Hour || o.Retry != 4 || o.Algorithm != plan.Ring {
		t.Errorf("without the group: %+v", o)
	}
	sources := map[string]string{}
	for _, x := range g.List {
		if x.Given() {
			sources[x.Name] = x.Source
		}
	}
	if sources["HMCFS_BUFFSIZE"] != "environment HMCFS_BUFFSIZE" || sources["HMCFS_EXEC_TIMEOUT"] != "group dp" ||
		sources["HMCFS_DFS_CONFIG"] != "environment HCCL_DFS_CONFIG" || len(sources) != 8 {
		t.Errorf("sources: %v", sources)
	}
	for _, bad := range []map[string]string{{"algo": "x"}, {"nothing": "1"}, {"HMCFS_ALGO": "ring"}} {
		if _, err := s.With("group dp", bad); !errors.Is(err, ErrValue) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if have := parse(t, nil).Options(collective.Options{}); !reflect.DeepEqual(have, collective.Options{}) {
		t.Errorf("nothing given: %+v", have)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	s := parse(t, map[string]string{
		"HMCFS_EXEC_TIMEOUT": "0", "HMCFS_CONNECT_TIMEOUT": "1", "HMCFS_FUSION_SIZE": "64", "HMCFS_FUSION_WINDOW": "0",
		"HMCFS_FUSION_BUFFERS": "3",
	})
	if o := s.Options(collective.Options{}); o.Timeout != forever {
		t.Errorf("for ever is %v", o.Timeout)
	}
	if o := s.Fabric(fabric.Options{}); o.Timeout != time.Second {
		t.Errorf("to join: %v", o.Timeout)
	}
	if o := s.Fusion(fusion.Options{}); o.Bytes != 64*devices.MiB || o.Window >= 0 || o.Buffers != 3 {
		t.Errorf("fusion: %+v", o)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	s := parse(t, map[string]string{"HCCL_RDMA_TC": "132", "HCCL_IF_IP": "::1", "HCCL_ALGO": "level1:ring"})
	if w := s.Warnings(); len(w) != 2 || !strings.HasPrefix(w[0], "HMCFS_RDMA_TC (environment HCCL_RDMA_TC) is ignored: ") {
		t.Errorf("%q", w)
	}
}

func TestLogCalls(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	told := 0
	s := parse(t, map[string]string{"HCCL_ENTRY_LOG_ENABLE": "1"})
	o := s.Options(collective.Options{Logger: zap.New(core), Observe: func(*collective.Report) { told++ }})
	o.Observe(&collective.Report{Task: plan.Task{Kind: plan.Barrier}})
	if told != 1 || logs.Len() != 1 {
		t.Errorf("told %d times, logged %d times", told, logs.Len())
	}
}

// TestDefaults: the texts of the table are valid, and no name occurs twice.
func TestDefaults(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range Knobs() {
		if k.Default != "" && !k.read(&values{}, k.Default, false) {
			t.Errorf("%s: the default %q is wrong", k.Name, k.Default)
		}
		for _, name := range []string{k.Name, k.Alias} {
			if name != "" && seen[name] {
				t.Errorf("%s comes twice", name)
			}
			seen[name] = true
		}
		if !strings.HasPrefix(k.Name, "HMCFS_") || k.Expected == "" || k.Meaning == "" {
			t.Errorf("%s: not told", k.Name)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, k := range Knobs() {
		f.Add(k.Default)
	}
	f.Add("allreduce=level0:NA;level1:ring/others=level1:NB")
	f.Fuzz(func(t *testing.T, text string) {
		for _, k := range Knobs() {
			for _, foreign := range []bool{false, true} {
				var first, second values
				right := k.read(&first, text, foreign)
				if right != k.read(&second, text, foreign) || fmt.Sprint(first) != fmt.Sprint(second) {
					t.Fatalf("%s: %q is not read alike", k.Name, text)
				}
				if !right && !reflect.DeepEqual(first, values{}) {
					t.Fatalf("%s: %q is wrong, and changes something", k.Name, text)
				}
			}
		}
	})
}
