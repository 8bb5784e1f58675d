package plan

import (
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"
)

func TestCompileSmoke(t *testing.T) {
	t.Parallel()
	for _, a := range Algorithms() {
		for k := AllReduce; k <= Barrier; k++ {
			for n := 1; n <= 17; n++ {
				op := elem.Op(0)
				if k.Combines() {
					op = elem.Avg
				}
				count := uint64(100)
				if k == Barrier {
					count = 0
				}
				task := Task{Kind: k, Ranks: n, Count: count, Type: elem.Float32, Op: op}
				if Can(task, Shape{Mapped: true}, a) != nil {
					continue
				}
				p, err := Compile(task, Shape{Mapped: true}, a)
				if err != nil {
					t.Fatal(err)
				}
				if n == 3 {
					t.Log(a, k, p.Scratch)
					for i, s := range p.Program(1) {
						t.Log(i, s.String())
					}
				}
				for r := range n {
					p.Program(Rank(r)).Waits()
				}
			}
		}
	}
}
