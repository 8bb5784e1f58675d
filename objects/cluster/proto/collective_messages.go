package proto

import (
	"fmt"
	"math"
	"slices"
)

// The bounds of collectives.
const (
	// MaxRanks bounds the files of one collective.
	MaxRanks = 64
	// JobSize is the length of a collective's name, in bytes.
	JobSize = 16
	// MaxBlocks bounds the blocks summed in one request; a block is at most MaxBlock bytes.
	MaxBlocks = 256
	MaxBlock  = 16 << 20
	// maxCosts bounds the size of the costs, in bytes.
	maxCosts = 256
)

// CollectAsk announces to a node a collective in which files of it are ranks: the operation,
// the participants, and the handles of the session that belong to each rank. It allocates the
// memory for the results.
type CollectAsk struct {
	_    struct{} `cbor:",toarray"`
	Job  []byte   // chosen by the requester
	Kind uint32   // plan.Kind
	Type uint32   // elem.Type
	Op   uint32   // elem.Op
	Root uint32
	Size uint64 // of each source, in bytes
	// Strict and Algorithm say how it is computed.
	Strict    bool
	Algorithm string
	// Nodes are the nodes that have files, Epochs their incarnations, and Me the index of the
	// node that receives the request. Of has for each rank the index of the node with its
	// file.
	Nodes  []string
	Epochs []uint64
	Me     uint32
	Of     []uint32
	// Files are the receiving node's own.
	Files []CollectFile
	// Costs are link costs that a group of these nodes has measured before
	// (collective.EncodeCosts), the same for all; if empty, they are measured.
	Costs []byte
}

// CollectFile is a rank of a collective: handles of the session, 0 for none.
type CollectFile struct {
	_      struct{} `cbor:",toarray"`
	Rank   uint32
	Source uint64
	Target uint64
}

// JobAsk names a collective.
type JobAsk struct {
	_   struct{} `cbor:",toarray"`
	Job []byte
	// Wait bounds the time until the answer, in milliseconds.
	Wait uint32
	// Commit makes the results the contents of their files; without it they are dropped.
	Commit bool
}

// CollectAnswer reports the progress of a collective on a node. A failure is answered with its
// error.
type CollectAnswer struct {
	_         struct{} `cbor:",toarray"`
	Done      bool
	Algorithm string
	Because   string
	Path      string
	Calls     uint64
	Predicted uint64 // nanoseconds, like Measured
	Measured  uint64
	Sent      uint64
	Received  uint64
	Retries   uint32
	// Costs are the costs that were measured, or given.
	Costs []byte
}

// SumsAsk requests the checksums of N blocks of a file, starting at block From.
type SumsAsk struct {
	_      struct{} `cbor:",toarray"`
	Handle uint64
	Block  uint64 // the length of a block, in bytes
	From   uint64
	N      uint32 // at most MaxBlocks
}

// SumsAnswer has the concatenated checksums, fewer only at the file's end.
type SumsAnswer struct {
	_    struct{} `cbor:",toarray"`
	Sums []byte
	Size uint64
}

func (a *CollectAsk) check() error {
	if len(a.Of) > MaxRanks || len(a.Nodes) > MaxRanks || len(a.Epochs) > MaxRanks || len(a.Files) > MaxRanks {
		return fmt.Errorf("%d ranks, %d nodes, %d epochs, %d files: the maximum is %d", len(a.Of), len(a.Nodes), len(a.Epochs), len(a.Files), MaxRanks)
	}
	if len(a.Costs) > maxCosts {
		return fmt.Errorf("costs of %d bytes, the maximum is %d", len(a.Costs), maxCosts)
	}
	return checkSizes(a.Size)
}

// Validate checks that the parts of the body are consistent.
//
// Errors: ErrBody.
func (a *CollectAsk) Validate() error {
	if err := a.fits(); err != nil {
		return fmt.Errorf("%w: %w", ErrBody, err)
	}
	return nil
}

func (a *CollectAsk) fits() error {
	switch {
	case len(a.Job) != JobSize:
		return fmt.Errorf("invalid job ID of %d bytes", len(a.Job))
	case len(a.Of) == 0 || len(a.Nodes) == 0 || len(a.Nodes) > len(a.Of) || len(a.Epochs) != len(a.Nodes):
		return fmt.Errorf("invalid participants: %d nodes and %d epochs for %d ranks", len(a.Nodes), len(a.Epochs), len(a.Of))
	case int64(a.Me) >= int64(len(a.Nodes)):
		return fmt.Errorf("invalid node index %d of %d", a.Me, len(a.Nodes))
	}
	ranks := make([]int, len(a.Nodes))
	for _, node := range a.Of {
		if int64(node) >= int64(len(a.Nodes)) {
			return fmt.Errorf("a rank has the invalid node index %d of %d", node, len(a.Nodes))
		}
		ranks[node]++
	}
	if slices.Contains(ranks, 0) || ranks[a.Me] != len(a.Files) {
		return fmt.Errorf("nodes with %v ranks, but %d files for node %d", ranks, len(a.Files), a.Me)
	}
	for _, f := range a.Files {
		if int64(f.Rank) >= int64(len(a.Of)) || a.Of[f.Rank] != a.Me {
			return fmt.Errorf("rank %d does not belong to the node", f.Rank)
		}
	}
	return nil
}

func (a *CollectAnswer) check() error {
	if len(a.Costs) > maxCosts {
		return fmt.Errorf("costs of %d bytes, the maximum is %d", len(a.Costs), maxCosts)
	}
	return checkSizes(a.Predicted, a.Measured)
}

func (a *SumsAnswer) check() error { return checkSizes(a.Size) }

// Validate checks that such blocks can exist.
//
// Errors: ErrBody.
func (a *SumsAsk) Validate() error {
	if a.N == 0 || a.N > MaxBlocks || a.Block == 0 || a.Block > MaxBlock || a.From > math.MaxInt64/MaxBlock {
		return fmt.Errorf("invalid range: %d blocks of %d bytes from block %d: %w", a.N, a.Block, a.From, ErrBody)
	}
	return nil
}
