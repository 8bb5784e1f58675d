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
		which, known := kinds(op)
		// An entry for all operations must stand alone.
		if !known || seen[op] || seen[""] || !specific && len(seen) > 0 {
			return false
		}
		seen[op] = true
		name, right := readLevels(levels, foreign)
		if !right {
			return false
		}
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
	var k plan.Kind
	if k.UnmarshalText([]byte(op)) == nil {
		return []plan.Kind{k}, true
	}
	return nil, false
}

// readLevels parses the levels of one operation, or the name of one of our
// algorithms. Kind 0 means any.
func readLevels(text string, foreign bool) (name func(plan.Kind) plan.Algorithm, right bool) {
	if own := plan.Algorithm(text); !foreign && own.Known() {
		return func(plan.Kind) plan.Algorithm { return own }, true
	}
	algorithms := hcommAlgorithms()
	var got [levels]string
	for part := range strings.SplitSeq(text, ";") {
		level, algo, found := strings.Cut(part, ":")
		i := strings.Index("0123", strings.TrimPrefix(level, "level"))
		_, known := algorithms[algo]
		if !found || len(level) != len("level0") || !strings.HasPrefix(level, "level") || i < 0 || got[i] != "" || !known {
			return nil, false
		}
		got[i] = algo
	}
	return func(k plan.Kind) plan.Algorithm {
		for _, i := range []int{1, 0, 2, 3} {
			switch a := algorithms[got[i]]; {
			case got[i] == nonUniformBruck && k.Rooted():
				return plan.Binomial
			case a != "":
				return a
			}
		}
		return ""
	}, true
}

// nonUniformBruck is a tree if one rank holds everything, and log2 N rounds of shares
// otherwise.
const nonUniformBruck = "NB"

// hcommAlgorithms maps the names of HCOMM's algorithms to our equivalents; an empty one
// leaves the choice to the model.
func hcommAlgorithms() map[string]plan.Algorithm {
	return map[string]plan.Algorithm{
		"null": "", "NA": "", "ring": plan.Ring, "H-D_R": plan.Doubling, "NHR": plan.NHR, "NHR_V1": plan.NHR, nonUniformBruck: plan.NHR,
		"pairwise": plan.Pairwise, "fullmesh": plan.Pairwise,
		"pipeline": plan.Hierarchical, "AHC": plan.Hierarchical, "AHC_BROKE": plan.Hierarchical,
	}
}
