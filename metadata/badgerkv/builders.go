package badgerkv

import (
	"errors"
	"reflect"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/ristretto/v2/z"
)

// Badger keeps the memory of up to eight builders of tables for the next ones, as long
// as any are built. Each has what its largest table took: 30 MiB for a memtable with
// attributes of 64 KiB, 240 MiB together where a user changes them again and again.
// Badger has no option for that. Its pool is a channel, which anyone may receive from.

// errBuilders says that Badger keeps that memory in another way than this knows.
var errBuilders = errors.New("badgerkv: the pool of table builders is not there")

// freeBuilders frees the memory of builders once they are done, until the database is
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
		for a := range kept { // Badger closes it
			a.Release()
		}
	}()
	return nil
}
