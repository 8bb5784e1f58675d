package badgerkv_test

import (
	"os"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// TestJournalOfVersion has healthy journals of other versions, such as a downgrade and an upgrade leave: they are not damaged, and the
// log names their version.
func TestJournalOfVersion(t *testing.T) {
	killed := journaled(t)
	for version, alter := range map[int64]func(path string) error{2: badgerkv.OfVersion2, 9: badgerkv.OfAnotherVersion} {
		dir := copyOf(t, killed)
		if err := alter(dir + ".journal"); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(dir+".journal", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n, uerr := badgerkv.Unwritten(f); n != 0 || uerr != nil {
			t.Errorf("version %d: %d commits of it are known, %v", version, n, uerr)
		}
		core, logs := observer.New(zap.WarnLevel)
		kv, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir, Journal: f, Logger: zap.New(core)})
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if said := logs.FilterField(zap.Int64("version", version)); said.Len() != 1 {
			t.Errorf("version %d: logged %v", version, logs.All())
		}
		if err = kv.Close(); err != nil {
			t.Error(err)
		}
		if err = f.Close(); err != nil {
			t.Error(err)
		}
	}
}
