package proto

import (
	"fmt"
	"math"
)

// maxNsec is the number of nanoseconds in one second.
const maxNsec = 1_000_000_000

func (t Time) check() error {
	if t.Nsec >= maxNsec {
		return fmt.Errorf("invalid time: %d nanoseconds", t.Nsec)
	}
	return nil
}

func checkTimes(times ...Time) error {
	for _, t := range times {
		if err := t.check(); err != nil {
			return err
		}
	}
	return nil
}

// checkSizes checks that numbers can be sizes, or offsets, of a file.
func checkSizes(numbers ...uint64) error {
	for _, n := range numbers {
		if n > math.MaxInt64 {
			return fmt.Errorf("invalid size or offset: %d bytes", n)
		}
	}
	return nil
}

func (a *MoveAnswer) check() error   { return checkSizes(a.N, a.Off, a.Size) }
func (a *SeekAnswer) check() error   { return checkSizes(a.Off) }
func (a *ClaimAnswer) check() error  { return checkSizes(a.Size) }
func (a *StatFSAnswer) check() error { return checkSizes(a.Total, a.Free, a.Used) }

func (c *Cred) check() error {
	if len(c.Groups) > MaxGroups {
		return fmt.Errorf("%d groups, the maximum is %d", len(c.Groups), MaxGroups)
	}
	return nil
}

func (a *CreateOpenAsk) check() error { return a.Create.check() }

func (a *Attr) check() error { return checkTimes(a.Atime, a.Mtime, a.Ctime, a.Btime, a.Expires) }

func (a *OpenAnswer) check() error { return a.Attr.check() }
func (a *KeyAnswer) check() error  { return a.Attr.check() }

func (a *ReadDirAnswer) check() error {
	for i := range a.Entries {
		if err := a.Entries[i].Attr.check(); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return nil
}

func (a *SetAttrAsk) check() error {
	if err := a.Cred.check(); err != nil {
		return err
	}
	for _, t := range []Time{a.Atime, a.Mtime} {
		if err := t.check(); err != nil && t.Nsec != TimeNow {
			return err
		}
	}
	return a.Ctime.check()
}

func (a *ExpireKeyAsk) check() error {
	if err := a.Cred.check(); err != nil {
		return err
	}
	return a.At.check()
}
