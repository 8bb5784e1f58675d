package objects_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/tests/spread"
)

// asGuard makes this program the process of an owner.Guard.
const asGuard = "as-guard"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asGuard {
		if err := owner.ServeGuard(os.NewFile(3, "control")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 4 && os.Args[1] == asWriter {
		if err := runWriter(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	spread.Main(m)
}
