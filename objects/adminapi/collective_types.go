package adminapi

import "github.com/hmcfs/hmcfs/devices"

// The paths of what is done with several files together.
const (
	PathCollect = "/v1/collect"
	PathVerify  = "/v1/verify"
)

// CollectRequest asks for a collective whose ranks are files. Where descriptors
// travel, they are those of the files in the order of Sources and then Targets,
// nulls left out, and each of the two lists has an empty File for each of them.
type CollectRequest struct {
	// Verb is "allreduce", "reduce", "broadcast", "allgather", "reducescatter"
	// or "alltoall".
	Verb string `json:"verb"`
	// Dtype is the type of the elements, by NumPy's name.
	Dtype string `json:"dtype"`
	// Op is "sum", "prod", "min", "max" or "avg"; empty where nothing is combined.
	Op   string `json:"op,omitempty"`
	Root int    `json:"root,omitempty"`
	// Strict combines in the order of the ranks, wherever the files are.
	Strict bool `json:"strict,omitempty"`
	// Algorithm is the one between nodes; empty is the fastest.
	Algorithm string `json:"algorithm,omitempty"`
	// Sources are the ranks' files, Targets what gets their results: the same
	// ones, for those that are done in place. Both have an entry for each rank;
	// null is none.
	Sources []*File `json:"sources"`
	Targets []*File `json:"targets"`
}

// CollectAnswer tells how it went.
type CollectAnswer struct {
	Verb  string `json:"verb"`
	Ranks int    `json:"ranks"`
	// Nodes is on how many nodes the files are.
	Nodes int    `json:"nodes"`
	Dtype string `json:"dtype"`
	Op    string `json:"op,omitempty"`
	// Size is the bytes of each source.
	Size devices.Size `json:"size"`
	// Algorithm is the one that was used: among the nodes, or on the one. Because says
	// what chose it, and Path how the bytes went.
	Algorithm string `json:"algorithm"`
	Because   string `json:"because"`
	Path      string `json:"path"`
	// Seconds is from the files' bytes to the results' being there; Predicted
	// and Measured are what of it the nodes did together, for Calls segments.
	Seconds   float64 `json:"seconds"`
	Calls     uint64  `json:"calls"`
	Predicted float64 `json:"predicted_seconds"`
	Measured  float64 `json:"measured_seconds"`
	Sent      uint64  `json:"sent"`
	Received  uint64  `json:"received"`
	Retries   int     `json:"retries"`
	// Algbw and Busbw are bytes a second, by the rules of nccl-tests.
	Algbw float64 `json:"algbw"`
	Busbw float64 `json:"busbw"`
}

// VerifyRequest asks whether files have the same bytes. Descriptors travel as
// with a CollectRequest.
type VerifyRequest struct {
	Files []*File `json:"files"`
}

// VerifyAnswer tells where they have not.
type VerifyAnswer struct {
	Equal bool `json:"equal"`
	// Size is the bytes of the first file, Block how many are compared at once.
	Size  devices.Size `json:"size"`
	Block devices.Size `json:"block"`
	// Different are the files that are not as the first one.
	Different []Different `json:"different"`
}

// Different is a file that is not as the first one.
type Different struct {
	// File is its place in the request.
	File int          `json:"file"`
	Size devices.Size `json:"size"`
	// Block is the first block that differs, from 0, and Blocks how many do.
	Block  uint64 `json:"block"`
	Blocks uint64 `json:"blocks"`
}
