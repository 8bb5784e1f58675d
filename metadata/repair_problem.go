package metadata

import (
	"context"
	"errors"
	"fmt"
)

// Repair fixes one problem as described at the constants of ProblemKind, in one
// transaction. Fixing one problem may reveal another, or fix it too, so callers repeat
// Check and Repair until Check finds nothing. The tree must not be changed otherwise
// meanwhile, or Repair may return ErrChanged.
//
// Errors: ErrChanged if the problem no longer exists; ErrInvalid for an unknown kind.
func (s *Store) Repair(ctx context.Context, p Problem) error {
	if p.Kind == DanglingRecords {
		return s.repairDangling(ctx, p)
	}
	repairs := map[ProblemKind]func(repairer, Problem) error{
		CorruptRecord:  repairer.corrupt,
		DanglingEntry:  repairer.danglingEntry,
		WrongEntryType: ofEntry(repairer.entryType),
		SecondEntry:    ofEntry(repairer.secondEntry),
		Orphan:         ofInode(repairer.orphan),
		Circle:         ofEntry(repairer.circle),
		WrongPrimary:   ofEntry(repairer.primary),
		MissingLink:    ofEntry(repairer.missingLink),
		DanglingLink:   ofInode(repairer.danglingLink),
		WrongNlink:     ofInode(repairer.nlink),
		WrongSize:      ofInode(repairer.size),
		WrongCount:     ofInode(repairer.count),
		DanglingKey:    repairer.danglingKey,
		MissingKey:     ofInode(repairer.missingKey),
		DanglingDevice: repairer.danglingDevice,
		MissingDevice:  ofInode(repairer.missingDevice),

		DanglingBinding: repairer.danglingBinding,
		MissingBinding:  ofInode(repairer.missingBinding),
		MissingPublish:  repairer.missingPublish,
		DanglingExpiry:  repairer.danglingExpiry,
		MissingExpiry:   ofInode(repairer.missingExpiry),
		DanglingPart:    repairer.danglingPart,
		WrongTaken:      ofInode(repairer.taken),
	}
	repair := repairs[p.Kind]
	if repair == nil {
		return fmt.Errorf("%w: %v", ErrInvalid, p.Kind)
	}
	err := s.update(ctx, func(t *txn) error { return repair(repairer{t}, p) })
	if errors.Is(err, ErrNotExist) {
		err = ErrChanged
	}
	if err != nil {
		return fmt.Errorf("repair %v: %w", p, err)
	}
	return nil
}

func (s *Store) repairDangling(ctx context.Context, p Problem) error {
	err := s.update(ctx, func(t *txn) error {
		_, err := t.inode(p.Ino)
		if err == nil {
			return ErrChanged
		}
		if !errors.Is(err, ErrNotExist) {
			return err
		}
		if _, err := t.deleteUnder(t.key(kindLink, uint64(p.Ino)), t.s.purgeBatch); err != nil {
			return err
		}
		t.set(t.key(kindPurge, uint64(p.Ino)), encodeNumber(nil, 1))
		return nil
	})
	if err != nil {
		return fmt.Errorf("repair %v: %w", p, err)
	}
	return s.purge(ctx, p.Ino)
}
