package fabric_test

import (
	"testing"

	"github.com/hmcfs/hmcfs/tests/spread"
)

func TestMain(m *testing.M) { spread.Main(m) }
