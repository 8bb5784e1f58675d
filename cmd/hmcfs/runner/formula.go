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

// formula is an expression in a job's file: numbers, variables, + - * / % and parentheses,
// evaluated in 64-bit floating point.
type formula struct{ root ast.Expr }

// variables returns the names that formulas may use, in the order of their values.
func variables() []string { return []string{"i", "rank", "nranks", "root"} }

// parseFormula parses a formula.
func parseFormula(text string) (formula, error) {
	e, err := parser.ParseExpr(text)
	if err != nil {
		return formula{}, fmt.Errorf("formula %q: use numbers, i, rank, nranks, root, + - * / %% and brackets", text)
	}
	if at := unfit(e); at != "" {
		return formula{}, fmt.Errorf("formula %q: %s can't be used; use numbers, i, rank, nranks, root, + - * / %% and brackets", text, at)
	}
	return formula{e}, nil
}

// unfit returns the first part that a formula can't contain, or "".
func unfit(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if _, err := strconv.ParseFloat(e.Value, 64); err != nil {
			return e.Value
		}
		return ""
	case *ast.Ident:
		if !slices.Contains(variables(), e.Name) {
			return e.Name
		}
		return ""
	case *ast.ParenExpr:
		return unfit(e.X)
	case *ast.UnaryExpr:
		if e.Op != token.SUB && e.Op != token.ADD {
			return e.Op.String()
		}
		return unfit(e.X)
	case *ast.BinaryExpr:
		if !slices.Contains([]token.Token{token.ADD, token.SUB, token.MUL, token.QUO, token.REM}, e.Op) {
			return e.Op.String()
		}
		if at := unfit(e.X); at != "" {
			return at
		}
		return unfit(e.Y)
	}
	return "a part of it"
}

// at evaluates the formula for the values of the variables.
func (f formula) at(values [4]float64) float64 { return eval(f.root, &values) }

func eval(e ast.Expr, values *[4]float64) float64 {
	switch e := e.(type) {
	case *ast.BasicLit:
		v, _ := strconv.ParseFloat(e.Value, 64) // parseFormula has validated it
		return v
	case *ast.Ident:
		return values[slices.Index(variables(), e.Name)]
	case *ast.ParenExpr:
		return eval(e.X, values)
	case *ast.UnaryExpr:
		if e.Op == token.SUB {
			return -eval(e.X, values)
		}
		return eval(e.X, values)
	case *ast.BinaryExpr:
		x, y := eval(e.X, values), eval(e.Y, values)
		switch e.Op {
		case token.ADD:
			return x + y
		case token.SUB:
			return x - y
		case token.MUL:
			return x * y
		case token.QUO:
			return x / y
		case token.REM:
			return math.Mod(x, y)
		default:
		}
	}
	return math.NaN()
}
