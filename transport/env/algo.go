package env

import (
	"strings"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// levels is the maximum number of levels of one algorithm: inside a server,
// between servers, between pods, and beyond.
const levels = 4

// readAlgo parses HCOMM's grammar:
//
//	text  = level { ";" level } | op "=" level { ";" level } { "/" op "=" … }
//	level = "level" ( "0" | "1" | "2" | "3" ) ":" name
//
// and, under our own name, our grammar: name | op "=" name { "/" op "=" name }.
func readAlgo(v *values, text string, foreign bool) bool {
	all := make(map[plan.Kind]plan.Algorithm)
	seen := make(map[string]bool)
	rest := func(plan.Kind) plan.Algorithm { return "" }
	for part := range strings.SplitSeq(strings.ReplaceAll(text, " ", ""), "/") {
		op, levels, specific := strings.Cut(part, "=")
		if !specific {
			op, levels = "", part
		}
		// An entry for all operations must stand alone.
		if _, known := kinds(op); seen[op] || seen[""] || specific && !known || !specific && len(seen) > 0 {
			return false
		}
		seen[op] = true
		name, right := readLevels(levels, foreign)
		if !right {
			return false
		}
		which, _ := kinds(op)
		for _, k := range which {
			all[k] = name(k)
		}
		if !specific || op == "others" {
			rest = name
		}
	}
	v.algorithm = rest(0)
	for k := plan.AllReduce; k <= plan.Barrier; k++ {
		if _, given := all[k]; !given && rest(k) != v.algorithm {
			all[k] = rest(k)
		}
	}
	v.algorithms = all
	return true
}

// kinds returns the kinds that an operation's name means; some known names mean
// none that exists here.
func kinds(op string) (which []plan.Kind, known bool) {
	switch op {
	case "", "others", "scatter", "gather", "send", "receive", "sendrecv", "batchsendrecv", "alltoallv", "alltoallvc":
		return nil, true
	case "reducescatter":
		return []plan.Kind{plan.ReduceScatter}, true
	}
	for k := plan.AllReduce; k <= plan.Barrier; k++ {
		if k.String() == op {
			return []plan.Kind{k}, true
		}
	}
	return nil, false
}

// readLevels parses the levels of one operation, or the name of one of our
// algorithms. Kind 0 means any.
func readLevels(text string, foreign bool) (name func(plan.Kind) plan.Algorithm, right bool) {
	if own := plan.Algorithm(text); !foreign && own.Known() {
		return func(plan.Kind) plan.Algorithm { return own }, true
	}
	var got [levels]string
	for part := range strings.SplitSeq(text, ";") {
		level, algo, found := strings.Cut(part, ":")
		i := strings.Index("0123", strings.TrimPrefix(level, "level"))
		if !found || len(level) != len("level0") || !strings.HasPrefix(level, "level") || i < 0 || got[i] != "" || !isAlgo(algo) {
			return nil, false
		}
		got[i] = algo
	}
	return func(k plan.Kind) plan.Algorithm {
		for _, i := range []int{1, 0, 2, 3} {
			if a := algorithm(got[i], k); a != "" {
				return a
			}
		}
		return ""
	}, true
}

func isAlgo(s string) bool {
	return oneOf("null", "ring", "pipeline", "fullmesh", "H-D_R", "pairwise", "NHR", "NHR_V1", "AHC", "AHC_BROKE", "NB", "NA")(s)
}

// algorithm returns our equivalent of one of HCOMM's algorithms; empty leaves the
// choice to the model.
func algorithm(name string, k plan.Kind) plan.Algorithm {
	switch name {
	case "ring":
		return plan.Ring
	case "H-D_R":
		return plan.Doubling
	case "NHR", "NHR_V1":
		return plan.NHR
	case "pairwise", "fullmesh":
		return plan.Pairwise
	case "pipeline", "AHC", "AHC_BROKE":
		return plan.Hierarchical
	case "NB":
		// Non-uniform Bruck: a tree if one rank holds everything, and log2 N
		// rounds of shares otherwise.
		if k.Rooted() {
			return plan.Binomial
		}
		return plan.NHR
	}
	return ""
}
