package env

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective"
)

// Knob is one setting.
type Knob struct {
	// Name is our variable, Alias HCOMM's name for it; empty if there is none.
	Name  string
	Alias string
	// Default is the text that has the same effect as no value.
	Default string
	syntax
	// Meaning describes the effect.
	Meaning string
	// Ignored is the reason why the knob has no effect here.
	Ignored string
}

// Key is the name in a group's settings: "algo".
func (k *Knob) Key() string { return strings.ToLower(strings.TrimPrefix(k.Name, "HMCFS_")) }

// Names of knobs that errors mention.
const (
	shmName = "HMCFS_INTRA_SHM_ENABLE"
	netName = "HMCFS_INTRA_NET_ENABLE"
)

// Knobs returns all knobs: those with an effect here first.
func Knobs() []Knob { return slices.Concat(chosen(), waited(), fused(), foreign()) }

// chosen returns the knobs that determine how a call is performed.
func chosen() []Knob {
	return []Knob{
		{
			Name: "HMCFS_ALGO", Alias: "HCCL_ALGO",
			syntax: syntax{
				"level0:NA;level1:<algo> or <op0>=level0:NA;level1:<algo0>/<op1>=level0:NA;level1:<algo1>, " +
					"where algo is null, ring, pipeline, fullmesh, H-D_R, pairwise, NHR, NHR_V1, AHC, AHC_BROKE, NB or NA; " +
					"HMCFS_ALGO also accepts <algorithm> or <op0>=<algorithm0>/<op1>=<algorithm1> with the algorithms of hmcfs",
				readAlgo,
			},
			Meaning: "The algorithm of every call that it supports. Of several levels, the one between servers decides: level1, then level0.",
		},
		{
			Name: "HMCFS_DETERMINISTIC", Alias: "HCCL_DETERMINISTIC", Default: "false",
			syntax:  word(func(v *values, w string) { v.strict = w == "strict" }, "false", "true", "strict"),
			Meaning: "strict combines in the order of the ranks. Even without it, the same call gives the same bits.",
		},
		{
			Name: "HMCFS_BUFFSIZE", Alias: "HCCL_BUFFSIZE", Default: "64",
			syntax:  integer(1, 65536, func(v *values, n int64) { v.buffer = devices.Size(n) * devices.MiB }),
			Meaning: "MiB of memory that a group keeps between calls for the intermediate data of its plans. HCOMM's default is 200.",
		},
		{
			Name: shmName, Alias: "HCCL_INTRA_PCIE_ENABLE", Default: "1",
			syntax:  bit(func(v *values, w string) { v.mapped = w }),
			Meaning: "Ranks of one host use shared memory.",
		},
		{
			Name: netName, Alias: "HCCL_INTRA_ROCE_ENABLE", Default: "0",
			syntax:  bit(func(v *values, w string) { v.streams = w }),
			Meaning: "Ranks of one host use the network instead of shared memory.",
		},
		{
			Name: "HMCFS_KEEP_SOURCE", Default: "0",
			syntax:  bit(func(v *values, w string) { v.keepSource = w == "1" }),
			Meaning: "Keep a copy of the data that an in-place call overwrites, so that the call can be repeated.",
		},
	}
}

// waited returns the knobs of timeouts, and of the reaction to them.
func waited() []Knob {
	ms, onOff := within(0, 60000), oneOf("on", "off")
	return []Knob{
		{
			Name: "HMCFS_CONNECT_TIMEOUT", Alias: "HCCL_CONNECT_TIMEOUT", Default: "120",
			syntax:  syntax{"an integer from 1 to 7200, or from 120 under HCOMM's name", readConnect},
			Meaning: "Seconds to wait for all ranks of a job to join.",
		},
		{
			Name: "HMCFS_EXEC_TIMEOUT", Alias: "HCCL_EXEC_TIMEOUT", Default: "1800",
			syntax:  syntax{"a number from 0 to 2147483647 with at most two decimals", readTimeout},
			Meaning: "Seconds that a rank waits for another one in a call; 0 means forever. HCOMM's default is 1836.",
		},
		{
			Name: "HMCFS_OP_RETRY_ENABLE", Alias: "HCCL_OP_RETRY_ENABLE", Default: "L0:1,L1:1,L2:1",
			syntax: pairs("L0:<0 or 1>,L1:<0 or 1>,L2:<0 or 1>", map[string]check{"L0": isBit, "L1": isBit, "L2": isBit},
				func(v *values, got map[string]string) { v.retryOn = slices.Max(slices.Collect(maps.Values(got))) }),
			Meaning: "Whether a call is repeated after a link was lost; on if any of the three is 1. HCOMM's default is 0.",
		},
		{
			Name: "HMCFS_OP_RETRY_PARAMS", Alias: "HCCL_OP_RETRY_PARAMS", Default: "MaxCnt:1",
			syntax: pairs("MaxCnt:<1 to 10>,HoldTime:<0 to 60000>,IntervalTime:<0 to 60000>",
				map[string]check{"MaxCnt": within(1, 10), "HoldTime": ms, "IntervalTime": ms},
				func(v *values, got map[string]string) {
					if n, given := got["MaxCnt"]; given {
						v.retries = int(number(n))
					}
				}),
			Meaning: "MaxCnt is how often a call is repeated. The two times are ignored: links are re-established as soon as all ranks take part.",
		},
		{
			Name: "HMCFS_DFS_CONFIG", Alias: "HCCL_DFS_CONFIG", Default: "stuck_detection:on,inconsistent_check:first",
			syntax: pairs("cluster_heartbeat:<on, off>,stuck_detection:<on, off>,inconsistent_check:<first, on, off>,"+
				"connection_fault_detection_time:<seconds to 7200>,task_monitor_interval:<milliseconds to 60000>",
				map[string]check{
					"cluster_heartbeat": onOff, "stuck_detection": onOff, "inconsistent_check": oneOf("first", "on", "off"),
					"connection_fault_detection_time": within(0, 7200), "task_monitor_interval": ms,
				},
				func(v *values, got map[string]string) {
					v.check = collective.Check(got["inconsistent_check"])
					if got["stuck_detection"] == "off" {
						v.stuck = forever
					}
				}),
			Meaning: "stuck_detection reports which ranks wait for which; inconsistent_check compares arguments. The rest is ignored: " +
				"the heartbeat of a session detects dead peers.",
		},
	}
}

// fused returns the knobs of the fusion of small tensors, and of the log.
func fused() []Knob {
	return []Knob{
		{
			Name: "HMCFS_FUSION_SIZE", Default: "32",
			syntax:  integer(1, 65536, func(v *values, n int64) { v.fusionBytes = devices.Size(n) * devices.MiB }),
			Meaning: "MiB of tensors that fill a fused bucket.",
		},
		{
			Name: "HMCFS_FUSION_WINDOW", Default: "5",
			syntax: integer(0, 60000, func(v *values, n int64) {
				if v.fusionWindow = time.Duration(n) * time.Millisecond; n == 0 {
					v.fusionWindow = -1
				}
			}),
			Meaning: "Milliseconds that the first tensor of a bucket waits for more; 0 means forever.",
		},
		{
			Name: "HMCFS_FUSION_BUFFERS", Default: "2",
			syntax:  integer(2, 64, func(v *values, n int64) { v.fusionSpares = int(n) }),
			Meaning: "How many buckets can be in progress at a time.",
		},
		{
			Name: "HMCFS_ENTRY_LOG_ENABLE", Alias: "HCCL_ENTRY_LOG_ENABLE", Default: "0",
			syntax:  bit(func(v *values, w string) { v.logCalls = w == "1" }),
			Meaning: "Log each call with its algorithm and times.",
		},
	}
}

// foreign returns the knobs of HCOMM that have no effect here. Of those without a reason
// to ignore them, only the harmless value is valid.
func foreign() []Knob {
	const (
		queuePairs = "hmcfs has no queue pairs of its own; UCX has variables for those that it creates"
		addresses  = "addresses come from HMCFS_BOOK, which `hmcfs run` sets, or from a mount's --listen"
	)
	class := checked("a multiple of 4 from 0 to 255", func(s string) bool { return within(0, 255)(s) && number(s)%4 == 0 })
	address := checked("an IP address", func(s string) bool { _, err := netip.ParseAddr(s); return err == nil })
	interfaces := checked("names of interfaces, separated by commas, after an optional ^ (all but these) or = (exactly these)", isInterfaces)
	ports := checked("auto, or ports and ranges a-b, separated by commas, from 1 to 65535, which must not overlap", isPorts)
	noList := checked("1: there is no list of permitted addresses; ranks prove that they know the secret, or present a certificate", oneOf("1"))
	engine := word(ignore, "AI_CPU", "AIV", "HOST", "HOST_TS", "CCU_MS", "CCU_SCHED")
	topics := checked("ALG, TASK and RESOURCE, separated by commas, after an optional ^ (all but these)", isTopics)
	noPlugin := checked("nothing: plugins are not supported", func(string) bool { return false })
	return []Knob{
		{"HMCFS_RDMA_TC", "HCCL_RDMA_TC", "132", class, "Traffic class.", queuePairs},
		{"HMCFS_RDMA_SL", "HCCL_RDMA_SL", "4", integer(0, 7, ignore), "Service level.", queuePairs},
		{"HMCFS_RDMA_TIMEOUT", "HCCL_RDMA_TIMEOUT", "20", integer(5, 24, ignore), "Exponent of the time before a packet is retransmitted.", queuePairs},
		{"HMCFS_RDMA_RETRY_CNT", "HCCL_RDMA_RETRY_CNT", "7", integer(1, 7, ignore), "How often a packet is retransmitted.", queuePairs},
		{"HMCFS_RDMA_QPS_PER_CONNECTION", "HCCL_RDMA_QPS_PER_CONNECTION", "1", integer(1, 32, ignore), "Queue pairs for each connection.", queuePairs},
		{"HMCFS_MULTI_QP_THRESHOLD", "HCCL_MULTI_QP_THRESHOLD", "512", integer(1, 8192, ignore), "Data size in KiB from which several queue pairs are used.", queuePairs},
		{"HMCFS_IF_IP", "HCCL_IF_IP", "", address, "IP address of this process.", addresses},
		{"HMCFS_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "", interfaces, "The network interfaces to use.", addresses},
		{"HMCFS_SOCKET_FAMILY", "HCCL_SOCKET_FAMILY", "", word(ignore, "AF_INET", "AF_INET6"), "IP version, IPv4 or IPv6.", addresses},
		{"HMCFS_IF_BASE_PORT", "HCCL_IF_BASE_PORT", "", integer(1024, 65520, ignore), "The first port to use.", addresses},
		{"HMCFS_HOST_SOCKET_PORT_RANGE", "HCCL_HOST_SOCKET_PORT_RANGE", "", ports, "Ports for the host.", addresses},
		{"HMCFS_NPU_SOCKET_PORT_RANGE", "HCCL_NPU_SOCKET_PORT_RANGE", "", ports, "Ports for the devices.", addresses},
		{"HMCFS_WHITELIST_DISABLE", "HCCL_WHITELIST_DISABLE", "1", noList, "Whether the check of addresses is disabled.", ""},
		{"HMCFS_WHITELIST_FILE", "HCCL_WHITELIST_FILE", "", checked("the path of a file", isPath), "The list of permitted addresses.", "hmcfs has no such list"},
		{"HMCFS_OP_EXPANSION_MODE", "HCCL_OP_EXPANSION_MODE", "", engine, "Which engine executes a collective.", "collectives always run on the host"},
		{"HMCFS_DEBUG_CONFIG", "HCCL_DEBUG_CONFIG", "", topics, "What is logged in detail.", "use --log-level, which applies to everything"},
		{"HMCFS_DIAGNOSE_ENABLE", "HCCL_DIAGNOSE_ENABLE", "0", bit(ignore), "Collect information for diagnosis.", "use `hmcfs doctor`"},
		{"HMCFS_DETOUR", "HCCL_DETOUR", "0", bit(ignore), "Use a route through a third device where there is no direct link.", "the topology determines the routes"},
		{"HMCFS_NIC_PLUGIN_SO", "HCOMM_NIC_PLUGIN_SO", "", noPlugin, "A library that provides a transport.", ""},
	}
}
