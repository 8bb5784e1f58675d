package memkv_test

import (
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/kvtest"
	"github.com/hmcfs/hmcfs/metadata/memkv"
)

func TestConformance(t *testing.T) {
	kvtest.Run(t, func(*testing.T) metadata.KV { return memkv.New() })
}
