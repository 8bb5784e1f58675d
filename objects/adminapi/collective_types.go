package adminapi

import "github.com/hmcfs/hmcfs/devices"

// The paths of operations on several files.
const (
	PathCollect = "/v1/collect"
	PathVerify  = "/v1/verify"
)

// CollectRequest requests a collective whose ranks are files. If descriptors are passed, they
// are those of the files in the order of Sources and then Targets, without the nulls, and each
// of them has an empty File in its list.
type CollectRequest struct {
	// Verb is "allreduce", "reduce", "broadcast", "allgather", "reducescatter"
	// or "alltoall".
	Verb string `json:"verb"`
	// Dtype is the type of the elements, by its NumPy name.
	Dtype string `json:"dtype"`
	// Op is "sum", "prod", "min", "max" or "avg"; empty if nothing is combined.
	Op   string `json:"op,omitempty"`
	Root int    `json:"root,omitempty"`
	// Strict combines in the order of the ranks, wherever the files are.
	Strict bool `json:"strict,omitempty"`
	// Algorithm is the algorithm between nodes; empty selects the fastest.
	Algorithm string `json:"algorithm,omitempty"`
	// Sources are the ranks' inputs, Targets the files that receive their results: the same
	// ones for collectives that are done in place. Both have an entry for each rank; null
	// means none.
	Sources []*File `json:"sources"`
	Targets []*File `json:"targets"`
}

// CollectAnswer reports the result of a collective.
type CollectAnswer struct {
	Verb  string `json:"verb"`
	Ranks int    `json:"ranks"`
	// Nodes is the number of nodes that have files.
	Nodes int    `json:"nodes"`
	Dtype string `json:"dtype"`
	Op    string `json:"op,omitempty"`
	// Size is the number of bytes of each source.
	Size devices.Size `json:"size"`
	// Algorithm is the algorithm that was used: among the nodes, or on the single node.
	// Because is the reason for the choice, and Path the route of the bytes.
	Algorithm string `json:"algorithm"`
	Because   string `json:"because"`
	Path      string `json:"path"`
	// Seconds is the time from reading the files to completing the results; Predicted and
	// Measured are the part of it that the nodes spent communicating, for Calls segments.
	Seconds   float64 `json:"seconds"`
	Calls     uint64  `json:"calls"`
	Predicted float64 `json:"predicted_seconds"`
	Measured  float64 `json:"measured_seconds"`
	Sent      uint64  `json:"sent"`
	Received  uint64  `json:"received"`
	Retries   int     `json:"retries"`
	// Algbw and Busbw are in bytes per second, as defined by nccl-tests.
	Algbw float64 `json:"algbw"`
	Busbw float64 `json:"busbw"`
}

// VerifyRequest asks whether files have the same bytes. Descriptors are passed as with a
// CollectRequest.
type VerifyRequest struct {
	Files []*File `json:"files"`
}

// VerifyAnswer reports where files differ.
type VerifyAnswer struct {
	Equal bool `json:"equal"`
	// Size is the number of bytes of the first file, Block that of the units of comparison.
	Size  devices.Size `json:"size"`
	Block devices.Size `json:"block"`
	// Different are the files that differ from the first one.
	Different []Different `json:"different"`
}

// Different is a file that differs from the first one.
type Different struct {
	// File is its index in the request.
	File int          `json:"file"`
	Size devices.Size `json:"size"`
	// Block is the first block that differs, from 0, and Blocks the number of blocks that do.
	Block  uint64 `json:"block"`
	Blocks uint64 `json:"blocks"`
}
