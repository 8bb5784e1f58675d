package runner

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"slices"
	"strconv"
)

// formula evaluates an expression of a job's file: numbers, variables, + - * / % and
// parentheses, in 64-bit floating point.
type formula func(values *[4]float64) float64

// variables returns the names that formulas may use, in the order of their values.
func variables() []string { return []string{"i", "rank", "nranks", "root"} }

// operators returns the operators that formulas may use between two operands.
func operators() map[token.Token]func(x, y float64) float64 {
	return map[token.Token]func(x, y float64) float64{
		token.ADD: func(x, y float64) float64 { return x + y },
		token.SUB: func(x, y float64) float64 { return x - y },
		token.MUL: func(x, y float64) float64 { return x * y },
		token.QUO: func(x, y float64) float64 { return x / y },
		token.REM: math.Mod,
	}
}

// parseFormula parses a formula.
func parseFormula(text string) (formula, error) {
	e, err := parser.ParseExpr(text)
	if err != nil {
		return nil, fmt.Errorf("formula %q: use numbers, i, rank, nranks, root, + - * / %% and brackets", text)
	}
	f, unfit := compile(e)
	if unfit != "" {
		return nil, fmt.Errorf("formula %q: %s can't be used; use numbers, i, rank, nranks, root, + - * / %% and brackets", text, unfit)
	}
	return f, nil
}

// compile returns the formula of an expression, or the first part that it can't contain.
func compile(e ast.Expr) (_ formula, unfit string) {
	switch e := e.(type) {
	case *ast.BasicLit:
		v, err := strconv.ParseFloat(e.Value, 64)
		if err != nil {
			return nil, e.Value
		}
		return func(*[4]float64) float64 { return v }, ""
	case *ast.Ident:
		i := slices.Index(variables(), e.Name)
		if i < 0 {
			return nil, e.Name
		}
		return func(values *[4]float64) float64 { return values[i] }, ""
	case *ast.ParenExpr:
		return compile(e.X)
	case *ast.UnaryExpr:
		if e.Op != token.SUB && e.Op != token.ADD {
			return nil, e.Op.String()
		}
		x, unfit := compile(e.X)
		if e.Op == token.ADD {
			return x, unfit
		}
		return func(values *[4]float64) float64 { return -x(values) }, unfit
	case *ast.BinaryExpr:
		op := operators()[e.Op]
		if op == nil {
			return nil, e.Op.String()
		}
		x, unfit := compile(e.X)
		if unfit != "" {
			return nil, unfit
		}
		y, unfit := compile(e.Y)
		return func(values *[4]float64) float64 { return op(x(values), y(values)) }, unfit
	}
	return nil, "a part of it"
}
