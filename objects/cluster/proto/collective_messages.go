package proto

import (
	"fmt"
	"math"
	"slices"
)

// The bounds of collectives.
const (
	// MaxRanks is the most files of one.
	MaxRanks = 64
	// JobSize is the length of the name of one, in bytes.
	JobSize = 16
	// MaxBlocks bounds the blocks summed at once, of MaxBlock bytes at most.
	MaxBlocks = 256
	MaxBlock  = 16 << 20
	// maxCosts is the most bytes of costs.
	maxCosts = 256
)

// CollectAsk tells a node of a collective in which files of it are ranks: what
// is to be done, who takes part, and which handles of the session are whose. It
// takes the memory of the results.
type CollectAsk struct {
	_    struct{} `cbor:",toarray"`
	Job  []byte   // drawn by the asker
	Kind uint32   // plan.Kind
	Type uint32   // elem.Type
	Op   uint32   // elem.Op
	Root uint32
	Size uint64 // of each source, in bytes
	// Strict and Algorithm are how.
	Strict    bool
	Algorithm string
	// Nodes are those that have files, Epochs their incarnations, Me the place
	// of the node that is asked. Of says for each rank whose its file is.
	Nodes  []string
	Epochs []uint64
	Me     uint32
	Of     []uint32
	// Files are the node's own.
	Files []CollectFile
	// Costs are those of links that a group of these nodes has measured before
	// (collective.EncodeCosts), the same for all; empty has them measured.
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
	// Wait bounds the time that the answer takes, in milliseconds.
	Wait uint32
	// Commit makes the results the contents of their files; without it they are
	// dropped.
	Commit bool
}

// CollectAnswer tells how far a collective is on a node. What has failed is
// answered by its error.
type CollectAnswer struct {
	_         struct{} `cbor:",toarray"`
	Done      bool
	Algorithm string
	Because   string
	Path      string
	Calls     uint64
	Predicted uint64 // nanoseconds, as Measured
	Measured  uint64
	Sent      uint64
	Received  uint64
	Retries   uint32
	// Costs has what was measured, or given.
	Costs []byte
}

// SumsAsk asks for the checksums of blocks of a file, from a block on.
type SumsAsk struct {
	_      struct{} `cbor:",toarray"`
	Handle uint64
	Block  uint64 // the length of a block, in bytes
	From   uint64
	N      uint32 // at most MaxBlocks
}

// SumsAnswer has them one behind the other, fewer only at the file's end.
type SumsAnswer struct {
	_    struct{} `cbor:",toarray"`
	Sums []byte
	Size uint64
}

func (a *CollectAsk) check() error {
	if len(a.Of) > MaxRanks || len(a.Nodes) > MaxRanks || len(a.Epochs) > MaxRanks || len(a.Files) > MaxRanks {
		return fmt.Errorf("%d ranks, %d nodes, %d epochs, %d files: at most %d", len(a.Of), len(a.Nodes), len(a.Epochs), len(a.Files), MaxRanks)
	}
	if len(a.Costs) > maxCosts {
		return fmt.Errorf("costs of %d bytes: at most %d", len(a.Costs), maxCosts)
	}
	return checkSizes(a.Size)
}

// Validate says whether the parts of the body fit together.
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
		return fmt.Errorf("job of %d bytes", len(a.Job))
	case len(a.Of) == 0 || len(a.Nodes) == 0 || len(a.Nodes) > len(a.Of) || len(a.Epochs) != len(a.Nodes):
		return fmt.Errorf("%d nodes and %d epochs for %d ranks", len(a.Nodes), len(a.Epochs), len(a.Of))
	case int64(a.Me) >= int64(len(a.Nodes)):
		return fmt.Errorf("node %d of %d", a.Me, len(a.Nodes))
	}
	ranks := make([]int, len(a.Nodes))
	for _, node := range a.Of {
		if int64(node) >= int64(len(a.Nodes)) {
			return fmt.Errorf("a rank of node %d of %d", node, len(a.Nodes))
		}
		ranks[node]++
	}
	if slices.Contains(ranks, 0) || ranks[a.Me] != len(a.Files) {
		return fmt.Errorf("nodes of %v ranks, and %d files of node %d", ranks, len(a.Files), a.Me)
	}
	for _, f := range a.Files {
		if int64(f.Rank) >= int64(len(a.Of)) || a.Of[f.Rank] != a.Me {
			return fmt.Errorf("rank %d is not the node's", f.Rank)
		}
	}
	return nil
}

func (a *CollectAnswer) check() error {
	if len(a.Costs) > maxCosts {
		return fmt.Errorf("costs of %d bytes: at most %d", len(a.Costs), maxCosts)
	}
	return checkSizes(a.Predicted, a.Measured)
}

func (a *SumsAnswer) check() error { return checkSizes(a.Size) }

// Validate says whether there can be such blocks.
//
// Errors: ErrBody.
func (a *SumsAsk) Validate() error {
	if a.N == 0 || a.N > MaxBlocks || a.Block == 0 || a.Block > MaxBlock || a.From > math.MaxInt64/MaxBlock {
		return fmt.Errorf("%d blocks of %d bytes from %d on: %w", a.N, a.Block, a.From, ErrBody)
	}
	return nil
}
