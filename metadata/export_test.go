package metadata

import "context"

// CollideNames replaces the store's hash of names.
func CollideNames(s *Store, hash func(string) uint64) { s.hash = hash }

// SetPurgeBatch changes how many records a removal deletes at a time.
func SetPurgeBatch(s *Store, n int) { s.purgeBatch = n }

// BulkFile describes a file for BulkCreate.
type BulkFile struct {
	Name string
	Key  string
	Map  Mapping
}

// BulkCreate creates files in one transaction, which is far faster than one for each and
// leaves the same records.
func BulkCreate(ctx context.Context, s *Store, parent Ino, node Node, files []BulkFile) error {
	inos := make([]Ino, len(files))
	for i := range inos {
		var err error
		if inos[i], err = s.newIno(ctx); err != nil {
			return err
		}
	}
	return s.update(ctx, func(t *txn) error {
		dir, err := t.dir(parent)
		if err != nil {
			return err
		}
		for i, f := range files {
			sl, err := t.findDirent(parent, f.Name)
			if err != nil {
				return err
			}
			rec := t.newRecord(inos[i], &dir, f.Name, node)
			rec.Key = f.Key
			t.putKey(f.Key, rec.Ino)
			if _, err := t.replaceMappings(&rec, []Mapping{f.Map}, 1); err != nil {
				return err
			}
			t.enter(&dir, f.Name, sl, &rec)
		}
		return nil
	})
}
