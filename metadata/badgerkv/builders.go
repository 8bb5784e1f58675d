package badgerkv

import (
	"errors"
	"reflect"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/ristretto/v2/z"
)

// Badger pools the memory of up to eight table builders for reuse, as long as tables keep
// being built. Each has the size of its largest table: 30 MiB for a memtable with
// attributes of 64 KiB, 240 MiB in total if a user keeps changing them. Badger has no
// option to limit that. Its pool is a channel, from which this package receives.

// errBuilders reports that Badger's pool does not have the expected structure.
var errBuilders = errors.New("badgerkv: Badger has no pool of table builders as expected")

// freeBuilders frees the memory of each builder when it is done, until the database is
// closed.
func freeBuilders(db *badger.DB) error {
	pool := reflect.ValueOf(db).Elem().FieldByName("allocPool")
	if !pool.IsValid() || pool.Kind() != reflect.Pointer || pool.IsNil() {
		return errBuilders
	}
	field := pool.Elem().FieldByName("allocCh")
	if !field.IsValid() || field.Type() != reflect.TypeFor[chan *z.Allocator]() {
		return errBuilders
	}
	kept := *(*chan *z.Allocator)(field.Addr().UnsafePointer())
	go func() {
		for a := range kept { // closed by Badger
			a.Release()
		}
	}()
	return nil
}
