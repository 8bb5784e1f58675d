package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// KeyKind is a kind of operation on a key.
type KeyKind string

// The kinds of operations on keys.
const (
	// Set gives an object a key. It fails while another object has the key.
	Set KeyKind = "set"
	// Get reads the object, and Exist reports whether there is one.
	Get   KeyKind = "get"
	Exist KeyKind = "exist"
	// Wait waits until there is an object.
	Wait KeyKind = "wait"
	// Del removes the key.
	Del KeyKind = "del"
	// leave makes the others forget the keys of a node, as the end of its lease does;
	// comeBack is the return of the node.
	leave    KeyKind = "lease of the node may end"
	comeBack KeyKind = "node is back"
	// undo reverts a Set that ended with an error.
	undo KeyKind = "undo"
)

// None is the Value of a key without an object.
const None = 0

// KeyOp is one operation on a key.
type KeyOp struct {
	Key  string
	Kind KeyKind
	// Value is the object that Set sets or Get has found; None for no object. For Exist any
	// other value represents some object.
	Value int
	// Node is the node that executed the operation.
	Node    string
	Outcome Outcome
	// Call and Return are the times since the beginning of the run.
	Call, Return time.Duration
	// away is set if the lease of Node may have ended by then.
	away bool
	// Error is the text of the operation's error, for a report.
	Error string `json:",omitempty"`
}

// String describes the operation in one line.
func (o KeyOp) String() string {
	what := fmt.Sprintf("%8.3f–%8.3f s  %s on %s", o.Call.Seconds(), o.Return.Seconds(), o.Kind, o.Node)
	if o.Kind != Del && o.Kind != Wait {
		what += fmt.Sprintf(" value %d", o.Value)
	}
	if o.Outcome == Unknown {
		what += "  may have happened: " + o.Error
	}
	return what
}

// Keys is the history of all operations on keys.
type Keys struct {
	mu sync.Mutex
	// +checklocks:mu
	ops []KeyOp
	// +checklocks:mu
	away []absence
}

// absence is a period in which the lease of a node may have ended.
type absence struct {
	node     string
	from, to time.Duration
}

// Away adds such a period: the others may have forgotten the node's keys.
func (k *Keys) Away(node string, from, to time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = append(k.away, absence{node, from, to})
}

// Add adds an operation that has ended.
func (k *Keys) Add(o KeyOp) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ops = append(k.ops, o)
}

// Len returns the number of operations.
func (k *Keys) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.ops)
}

// Write writes the history, one operation in each line, in JSON.
func (k *Keys) Write(to io.Writer) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	lines := json.NewEncoder(to)
	for _, o := range k.ops {
		if err := lines.Encode(o); err != nil {
			return fmt.Errorf("write the history of keys: %w", err)
		}
	}
	return nil
}

// keyLimit bounds the check of one key's history.
const keyLimit = time.Minute

// Check returns the keys whose histories no single register explains. Keys whose check
// takes too long are counted as undecided.
func (k *Keys) Check() (bad []Violation, undecided int) {
	k.mu.Lock()
	all := map[string][]KeyOp{}
	for _, o := range k.ops {
		all[o.Key] = append(all[o.Key], o)
	}
	away := slices.Clone(k.away)
	k.mu.Unlock()
	for key, ops := range all {
		ops = append(ops, absences(key, ops, away)...)
		for i, o := range ops {
			ops[i].away = slices.ContainsFunc(away, func(a absence) bool {
				return a.node == o.Node && a.from <= o.Return && a.to >= o.Call
			})
		}
		switch porcupine.CheckOperationsTimeout(register(), operations(ops), keyLimit) {
		case porcupine.Illegal:
			bad = append(bad, Violation{"key is not one register", tell(key, ops)})
		case porcupine.Unknown:
			undecided++
		case porcupine.Ok:
		}
	}
	return bad, undecided
}

// absences returns the ends of leases that may be part of a key's history.
func absences(key string, ops []KeyOp, away []absence) []KeyOp {
	first, last := ops[0].Call, ops[0].Return
	for _, o := range ops {
		first, last = min(first, o.Call), max(last, o.Return)
	}
	var out []KeyOp
	for _, a := range away {
		if a.from <= last && a.to >= first {
			// The node returns at some time in the period, and at its end at the latest.
			out = append(out,
				KeyOp{Key: key, Kind: leave, Node: a.node, Outcome: Done, Call: a.from, Return: a.to - 1},
				KeyOp{Key: key, Kind: comeBack, Node: a.node, Call: a.from, Return: a.to - 1},
				KeyOp{Key: key, Kind: comeBack, Node: a.node, Outcome: Done, Call: a.to, Return: a.to})
		}
	}
	return out
}

// tell formats a key's history for a report.
func tell(key string, ops []KeyOp) string {
	slices.SortFunc(ops, func(a, b KeyOp) int { return cmp.Compare(a.Call, b.Call) })
	var text strings.Builder
	fmt.Fprintf(&text, "%s", key)
	for _, o := range ops {
		fmt.Fprintf(&text, "\n  %v", o)
	}
	return text.String()
}

// operations returns the operations that constrain the history, in the form that porcupine
// expects.
func operations(ops []KeyOp) []porcupine.Operation {
	var out []porcupine.Operation
	add := func(o KeyOp, end int64) {
		out = append(out, porcupine.Operation{ClientId: len(out), Input: o, Call: int64(o.Call), Return: end})
	}
	for _, o := range ops {
		switch {
		case o.Outcome == Done || o.Kind == comeBack:
			add(o, int64(o.Return))
		case o.Kind == Set:
			add(o, math.MaxInt64) // it may take effect later
			o.Kind = undo
			add(o, math.MaxInt64)
		case o.Kind == Del:
			add(o, math.MaxInt64)
		}
	}
	return out
}

// object is the state of a key: its value, and the node that has it. gone holds the value
// that each absent node has under the key.
type object struct {
	value int
	node  string
	gone  [maxNodes]int
}

// with returns the object with another value on an absent node.
func (o object) with(node string, value int) object {
	o.gone[place(node)] = value
	return o
}

// maxNodes bounds the number of nodes, which are named a, b, c and so on.
const maxNodes = 4

// place returns the index of a node in object.gone.
func place(node string) int { return int(node[0]-'a') % maxNodes }

// register returns the model of a key: a register with one value at a time.
func register() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{object{}} },
		Step: func(state, input, _ any) []any {
			now, known := state.(object)
			op, asked := input.(KeyOp)
			if !known || !asked {
				return nil
			}
			var out []any
			for _, next := range step(now, op) {
				out = append(out, next)
			}
			return out
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return model.ToModel()
}

// step returns the states to which an operation may lead; none if the operation is
// impossible.
func step(now object, op KeyOp) []object {
	// An absent node still has its own key, and answers requests for it.
	own := now.gone[place(op.Node)]
	switch op.Kind {
	case Set:
		next := now
		next.value, next.node = op.Value, op.Node
		out := may(op, now, next, now.value == None)
		if op.away && now.value == None && own == None {
			out = append(out, now.with(op.Node, op.Value))
		}
		return out
	case undo:
		return may(op, now, object{gone: now.gone}, now.value == op.Value)
	case Del:
		next := object{gone: now.gone}
		out := may(op, now, next, true)
		if op.away && own != None {
			out = append(out, now.with(op.Node, None), next.with(op.Node, None))
		}
		return out
	case Get:
		return when(now, now.value == op.Value || own != None && own == op.Value)
	case Exist:
		return when(now, (now.value == None) == (op.Value == None) || own != None && op.Value != None)
	case Wait:
		return when(now, now.value != None || own != None)
	case leave:
		return forget(now, op.Node)
	case comeBack:
		return restore(now, op)
	}
	return nil
}

// may returns the states after an operation that leads to next if it is possible, and that
// may not have taken effect if its outcome is unknown.
func may(op KeyOp, now, next object, possible bool) []object {
	var out []object
	if op.Outcome == Unknown {
		out = append(out, now)
	}
	if possible {
		out = append(out, next)
	}
	return out
}

// when returns the state after an operation that changes nothing; none if it is impossible.
func when(now object, possible bool) []object {
	if !possible {
		return nil
	}
	return []object{now}
}

// forget returns the states in which the others have forgotten a node's key, or not.
func forget(now object, node string) []object {
	out := []object{now}
	if now.value != None && now.node == node {
		out = append(out, object{gone: now.gone}.with(node, now.value))
	}
	return out
}

// restore returns the states after the return of a node: it has its key again, or has lost
// it, because another node has the key now or the key was removed meanwhile.
func restore(now object, op KeyOp) []object {
	value := now.gone[place(op.Node)]
	if value == None {
		return []object{now}
	}
	lost := now.with(op.Node, None)
	out := []object{lost}
	if now.value == None {
		back := lost
		back.value, back.node = value, op.Node
		out = append(out, back)
	}
	if op.Outcome == Unknown {
		out = append(out, now)
	}
	return out
}
