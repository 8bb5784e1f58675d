package memkv_test

import (
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/conformance/kvtest"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

func TestConformance(t *testing.T) {
	kvtest.Run(t, func(*testing.T) metadata.KV { return memkv.New() })
}
