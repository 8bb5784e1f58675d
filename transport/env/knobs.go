package env

import (
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
	// Expected describes the valid values, Meaning their effect.
	Expected string
	Meaning  string
	// Ignored is the reason why the knob has no effect here.
	Ignored string
	// read parses a text and stores its value, if it is valid. foreign means a
	// text under HCOMM's name.
	read func(v *values, text string, foreign bool) bool
}

// Key is the name in a group's settings: "algo".
func (k *Knob) Key() string { return strings.ToLower(strings.TrimPrefix(k.Name, "HMCFS_")) }

// Names of knobs that errors mention.
const (
	shmName = "HMCFS_INTRA_SHM_ENABLE"
	netName = "HMCFS_INTRA_NET_ENABLE"
)

// Knobs returns all knobs: those with an effect here first.
func Knobs() []Knob { return slices.Concat(chosen(), waited(), fused(), rdma(), sockets(), others()) }

// chosen returns the knobs that determine how a call is performed.
func chosen() []Knob {
	return []Knob{
		{
			Name: "HMCFS_ALGO", Alias: "HCCL_ALGO", Default: "",
			Expected: "level0:NA;level1:<algo> or <op0>=level0:NA;level1:<algo0>/<op1>=level0:NA;level1:<algo1>, " +
				"where algo is null, ring, pipeline, fullmesh, H-D_R, pairwise, NHR, NHR_V1, AHC, AHC_BROKE, NB or NA; " +
				"HMCFS_ALGO also accepts <algorithm> or <op0>=<algorithm0>/<op1>=<algorithm1> with the algorithms of hmcfs",
			Meaning: "The algorithm of every call that it supports. Of several levels, the one between servers decides: level1, then level0.",
			read:    readAlgo,
		},
		{
			Name: "HMCFS_DETERMINISTIC", Alias: "HCCL_DETERMINISTIC", Default: "false",
			Expected: "false, true or strict",
			Meaning:  "strict combines in the order of the ranks. Even without it, the same call gives the same bits.",
			read: word([]string{"false", "true", "strict"}, func(v *values, w string) {
				v.strict = w == "strict"
			}),
		},
		{
			Name: "HMCFS_BUFFSIZE", Alias: "HCCL_BUFFSIZE", Default: "64",
			Expected: "an integer from 1 to 65536",
			Meaning:  "MiB of memory that a group keeps between calls for the intermediate data of its plans. HCOMM's default is 200.",
			read:     integer(1, 65536, func(v *values, n int64) { v.buffer = devices.Size(n) * devices.MiB }),
		},
		{
			Name: shmName, Alias: "HCCL_INTRA_PCIE_ENABLE", Default: "1",
			Expected: "0 or 1",
			Meaning:  "Ranks of one host use shared memory.",
			read:     word(bits(), func(v *values, w string) { v.mapped = w }),
		},
		{
			Name: netName, Alias: "HCCL_INTRA_ROCE_ENABLE", Default: "0",
			Expected: "0 or 1",
			Meaning:  "Ranks of one host use the network instead of shared memory.",
			read:     word(bits(), func(v *values, w string) { v.streams = w }),
		},
		{
			Name: "HMCFS_KEEP_SOURCE", Default: "0",
			Expected: "0 or 1",
			Meaning:  "Keep a copy of the data that an in-place call overwrites, so that the call can be repeated.",
			read:     word(bits(), func(v *values, w string) { v.keepSource = w == "1" }),
		},
	}
}

// waited returns the knobs of timeouts, and of the reaction to them.
func waited() []Knob {
	return []Knob{
		{
			Name: "HMCFS_CONNECT_TIMEOUT", Alias: "HCCL_CONNECT_TIMEOUT", Default: "120",
			Expected: "an integer from 1 to 7200, or from 120 under HCOMM's name",
			Meaning:  "Seconds to wait for all ranks of a job to join.",
			read: func(v *values, text string, foreign bool) bool {
				low := int64(1)
				if foreign {
					low = 120
				}
				return integer(low, 7200, func(v *values, n int64) { v.connect = time.Duration(n) * time.Second })(v, text, foreign)
			},
		},
		{
			Name: "HMCFS_EXEC_TIMEOUT", Alias: "HCCL_EXEC_TIMEOUT", Default: "1800",
			Expected: "a number from 0 to 2147483647 with at most two decimals",
			Meaning:  "Seconds that a rank waits for another one in a call; 0 means forever. HCOMM's default is 1836.",
			read: decimal(2147483647, func(v *values, d time.Duration) {
				if v.timeout = d; d == 0 {
					v.timeout = forever
				}
			}),
		},
		{
			Name: "HMCFS_OP_RETRY_ENABLE", Alias: "HCCL_OP_RETRY_ENABLE", Default: "L0:1,L1:1,L2:1",
			Expected: "L0:<0 or 1>,L1:<0 or 1>,L2:<0 or 1>, each at most once",
			Meaning:  "Whether a call is repeated after a link was lost; on if any of the three is 1. HCOMM's default is 0.",
			read: func(v *values, text string, _ bool) bool {
				return pairs(text, map[string]check{"L0": isBit, "L1": isBit, "L2": isBit}, func(got map[string]string) {
					v.retryOn = "0"
					for _, w := range got {
						v.retryOn = max(v.retryOn, w)
					}
				})
			},
		},
		{
			Name: "HMCFS_OP_RETRY_PARAMS", Alias: "HCCL_OP_RETRY_PARAMS", Default: "MaxCnt:1",
			Expected: "MaxCnt:<1 to 10>,HoldTime:<0 to 60000>,IntervalTime:<0 to 60000>, each at most once",
			Meaning:  "MaxCnt is how often a call is repeated. The two times are ignored: links are re-established as soon as all ranks take part.",
			read: func(v *values, text string, _ bool) bool {
				ms := within(0, 60000)
				return pairs(text, map[string]check{"MaxCnt": within(1, 10), "HoldTime": ms, "IntervalTime": ms}, func(got map[string]string) {
					if n, given := got["MaxCnt"]; given {
						v.retries = int(number(n))
					}
				})
			},
		},
		{
			Name: "HMCFS_DFS_CONFIG", Alias: "HCCL_DFS_CONFIG", Default: "stuck_detection:on,inconsistent_check:first",
			Expected: "cluster_heartbeat:<on, off>,stuck_detection:<on, off>,inconsistent_check:<first, on, off>," +
				"connection_fault_detection_time:<seconds to 7200>,task_monitor_interval:<milliseconds to 60000>, each at most once",
			Meaning: "stuck_detection reports which ranks wait for which; inconsistent_check compares arguments. The rest is ignored: " +
				"the heartbeat of a session detects dead peers.",
			read: readWatch,
		},
	}
}

func readWatch(v *values, text string, _ bool) bool {
	onOff := oneOf("on", "off")
	return pairs(text, map[string]check{
		"cluster_heartbeat": onOff, "stuck_detection": onOff, "inconsistent_check": oneOf("first", "on", "off"),
		"connection_fault_detection_time": within(0, 7200), "task_monitor_interval": within(0, 60000),
	}, func(got map[string]string) {
		v.check = collective.Check(got["inconsistent_check"])
		if got["stuck_detection"] == "off" {
			v.stuck = forever
		}
	})
}

// fused returns the knobs of the fusion of small tensors.
func fused() []Knob {
	return []Knob{
		{
			Name: "HMCFS_FUSION_SIZE", Default: "32",
			Expected: "an integer from 1 to 65536",
			Meaning:  "MiB of tensors that fill a fused bucket.",
			read:     integer(1, 65536, func(v *values, n int64) { v.fusionBytes = devices.Size(n) * devices.MiB }),
		},
		{
			Name: "HMCFS_FUSION_WINDOW", Default: "5",
			Expected: "an integer from 0 to 60000",
			Meaning:  "Milliseconds that the first tensor of a bucket waits for more; 0 means forever.",
			read: integer(0, 60000, func(v *values, n int64) {
				if v.fusionWindow = time.Duration(n) * time.Millisecond; n == 0 {
					v.fusionWindow = -1
				}
			}),
		},
		{
			Name: "HMCFS_FUSION_BUFFERS", Default: "2",
			Expected: "an integer from 2 to 64",
			Meaning:  "How many buckets can be in progress at a time.",
			read:     integer(2, 64, func(v *values, n int64) { v.fusionSpares = int(n) }),
		},
		{
			Name: "HMCFS_ENTRY_LOG_ENABLE", Alias: "HCCL_ENTRY_LOG_ENABLE", Default: "0",
			Expected: "0 or 1",
			Meaning:  "Log each call with its algorithm and times.",
			read:     word(bits(), func(v *values, w string) { v.logCalls = w == "1" }),
		},
	}
}
