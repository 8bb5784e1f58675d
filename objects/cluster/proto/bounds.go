package proto

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxNsec is one second.
const maxNsec = 1_000_000_000

func (t Time) check() error {
	if t.Nsec >= maxNsec {
		return fmt.Errorf("%d nanoseconds", t.Nsec)
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

// checkSizes says whether numbers are bytes, or places, of a file.
func checkSizes(numbers ...uint64) error {
	for _, n := range numbers {
		if n > math.MaxInt64 {
			return fmt.Errorf("%d bytes", n)
		}
	}
	return nil
}

// maxText is the longest text of an answer that is no name, key, path or target.
const maxText = 1024

// checkTexts says whether texts may be shown to a person.
func checkTexts(texts ...string) error {
	for _, text := range texts {
		if len(text) > maxText || strings.ContainsFunc(text, func(r rune) bool { return r == utf8.RuneError || unicode.IsControl(r) }) {
			return fmt.Errorf("a text of %d bytes that can't be shown", len(text))
		}
	}
	return nil
}

func (a *MoveAnswer) check() error  { return checkSizes(a.N, a.Off, a.Size) }
func (a *SeekAnswer) check() error  { return checkSizes(a.Off) }
func (a *ClaimAnswer) check() error { return checkSizes(a.Size) }

func (a *StatFSAnswer) check() error {
	if err := checkSizes(a.Total, a.Free, a.Used); err != nil {
		return err
	}
	if a.Free > a.Total {
		return fmt.Errorf("%d bytes free of %d", a.Free, a.Total)
	}
	return checkTexts(a.Device)
}

func (c *Cred) check() error {
	if len(c.Groups) > MaxGroups {
		return fmt.Errorf("%d groups, at most %d", len(c.Groups), MaxGroups)
	}
	return nil
}

func (a *Attr) check() error { return checkTimes(a.Atime, a.Mtime, a.Ctime, a.Btime, a.Expires) }

func (a *LookupAsk) check() error     { return a.Cred.check() }
func (a *InoAsk) check() error        { return a.Cred.check() }
func (a *ReadDirAsk) check() error    { return a.Cred.check() }
func (a *CreateAsk) check() error     { return a.Cred.check() }
func (a *LinkAsk) check() error       { return a.Cred.check() }
func (a *RemoveAsk) check() error     { return a.Cred.check() }
func (a *RenameAsk) check() error     { return a.Cred.check() }
func (a *XattrAsk) check() error      { return a.Cred.check() }
func (a *OpenAsk) check() error       { return a.Cred.check() }
func (a *PullAsk) check() error       { return a.Cred.check() }
func (a *KeyAsk) check() error        { return a.Cred.check() }
func (a *ClaimAsk) check() error      { return a.Cred.check() }
func (a *OpenAnswer) check() error    { return a.Attr.check() }
func (a *KeyAnswer) check() error     { return a.Attr.check() }
func (a *ReadDirAnswer) check() error { return checkEntries(a.Entries) }

func checkEntries(entries []Entry) error {
	for i := range entries {
		if err := entries[i].Attr.check(); err != nil {
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
