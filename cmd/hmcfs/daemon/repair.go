package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// kernel is notified of what a repair changes, so that it drops its caches.
type kernel interface {
	EntryChanged(parent metadata.Ino, name string)
	InodeChanged(ino metadata.Ino)
}

// noKernel is the kernel if nothing is mounted.
type noKernel struct{}

func (noKernel) EntryChanged(metadata.Ino, string) {}
func (noKernel) InodeChanged(metadata.Ino)         {}

// openState opens the records of a dead daemon. With repair, damaged records are replaced
// by what can be read of them, and a damaged journal ends before the damage; the problems describe that.
func openState(ctx context.Context, opts badgerkv.Options, repair bool) (*metadata.Store, []adminapi.Problem, error) {
	meta, refused := openUnmounted(ctx, opts)
	if refused == nil || !repair || !errors.Is(refused, metadata.ErrCorrupt) {
		return meta, nil, refused
	}
	opts.MendJournal = true
	if damaged, ok := errors.AsType[*badgerkv.JournalError](refused); ok {
		meta, refused = openUnmounted(ctx, opts)
		return meta, []adminapi.Problem{{
			Text: damaged.Error(), Repaired: true,
			Done: fmt.Sprintf("the %d changes before the damage are written; those after it, which were the last ones, are gone", damaged.Commits),
		}}, refused
	}
	salvaged, err := badgerkv.Salvage(ctx, opts, refused, metadata.Repair)
	if err != nil {
		return nil, nil, errors.Join(refused, err)
	}
	var rows []adminapi.Problem
	for _, text := range salvaged.Damage {
		rows = append(rows, adminapi.Problem{Text: text, Repaired: true, Done: "what can be read is recovered; the damaged records are kept in " + salvaged.Aside})
	}
	if opts.Journal != nil {
		// It was of the damaged records, and may depend on what is gone.
		unwritten, uerr := badgerkv.Unwritten(opts.Journal)
		switch damaged, ok := errors.AsType[*badgerkv.JournalError](uerr); {
		case ok:
			salvaged.Gone = append(salvaged.Gone, fmt.Sprintf("the last changes, %d or more: %v", unwritten, damaged))
		case uerr != nil:
			return nil, nil, uerr
		case unwritten > 0:
			salvaged.Gone = append(salvaged.Gone, fmt.Sprintf("the last %d changes, which were still in the journal %s", unwritten, opts.Journal.Name()))
		}
	}
	for _, text := range salvaged.Gone {
		rows = append(rows, adminapi.Problem{Text: "gone: " + text, Repaired: true, Done: "what it changed may be missing, or be as it was before"})
	}
	meta, err = openUnmounted(ctx, opts)
	return meta, rows, err
}

// journalFault describes a damaged journal of the records in a state directory, with the remedy.
func journalFault(state string, damaged *badgerkv.JournalError) error {
	return fmt.Errorf("%w; the records in %s are not damaged: hmcfs fsck --repair --state-dir %s writes the changes before the damage (%d), and drops those after it, which were the last ones",
		damaged, state, state, damaged.Commits)
}

// openUnmounted opens records that no daemon uses. Closing the store closes the database
// too.
func openUnmounted(ctx context.Context, opts badgerkv.Options) (*metadata.Store, error) {
	kv, err := badgerkv.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		return nil, errors.Join(err, kv.Close())
	}
	return meta, nil
}

// mostRounds bounds how often the records are checked again: repairing one problem may
// reveal another.
const mostRounds = 10

// repair repairs the problems found, in rounds until no more are found, and reports every
// problem once.
func (c *checker) repair(ctx context.Context, report *adminapi.FsckReport, found []metadata.Problem) error {
	index := map[string]int{}
	at := func(p metadata.Problem) *adminapi.Problem {
		n, ok := index[p.String()]
		if !ok {
			n = len(report.Problems)
			index[p.String()] = n
			report.Problems = append(report.Problems, adminapi.Problem{Text: p.String(), Ino: p.Ino})
		}
		return &report.Problems[n]
	}
	for round := 0; len(found) > 0 && round < mostRounds; round++ {
		for _, p := range found {
			if err := ctx.Err(); err != nil {
				return err
			}
			c.repairRecords(ctx, p, at(p))
		}
		var err error
		if found, err = c.problems(ctx); err != nil {
			return err
		}
	}
	for _, p := range found {
		row := at(p)
		row.Repaired, row.Done = false, ""
		if row.Fault == "" {
			row.Fault = "it reappears after each repair"
		}
	}
	for _, p := range report.Problems {
		if p.Repaired {
			report.Repaired++
		}
	}
	return nil
}

func (c *checker) repairRecords(ctx context.Context, p metadata.Problem, row *adminapi.Problem) {
	err := c.meta.Repair(ctx, p)
	if errors.Is(err, metadata.ErrChanged) {
		row.Repaired, row.Fault = true, ""
		if row.Done == "" {
			row.Done = "solved by another repair"
		}
		return
	}
	if err != nil {
		row.Repaired, row.Done, row.Fault = false, "", err.Error()
		return
	}
	row.Repaired, row.Done, row.Fault = true, p.Remedy(), ""
	if p.Parent != 0 && p.Name != "" {
		c.kernel.EntryChanged(p.Parent, p.Name)
	}
	for _, ino := range []metadata.Ino{p.Parent, p.Ino} {
		if ino != 0 {
			c.kernel.InodeChanged(ino)
		}
	}
	if p.Kind == metadata.Orphan || p.Kind == metadata.Circle {
		row.Done = c.adopted(ctx, p)
	}
}

// adopted describes where an inode without a parent was put.
func (c *checker) adopted(ctx context.Context, p metadata.Problem) string {
	i, err := c.meta.Get(ctx, p.Ino)
	if errors.Is(err, metadata.ErrNotExist) {
		return "it is removed, as its device does not exist either"
	}
	if err != nil {
		return p.Remedy()
	}
	c.kernel.EntryChanged(i.Parent, i.Name)
	c.kernel.InodeChanged(i.Parent)
	path, err := c.meta.PathOf(ctx, p.Ino)
	if err != nil {
		return p.Remedy()
	}
	return "it is put back as " + path
}
