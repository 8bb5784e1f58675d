package main

import (
	"context"
	"errors"
	"fmt"
)

// deviceChecks need no mount: what the machine's driver can do between two
// processes, by the independent program alone. A check through the mount
// that fails where this passes is hmcfs's.
func (s *suite) deviceChecks(ctx context.Context) {
	for _, kind := range s.shareKinds() {
		s.check(ctx, "two processes share memory without hmcfs: "+kind, func(ctx context.Context) (string, error) {
			return s.shareAlone(ctx, kind)
		})
	}
}

// shareKinds are the kinds of handles that the device's family has.
func (s *suite) shareKinds() []string {
	if s.device.family == "cuda" {
		return []string{"ipc", "vmm-fd"}
	}
	return nil
}

// shareAlone has one truth process own memory, and another open it.
func (s *suite) shareAlone(ctx context.Context, kind string) (_ string, err error) {
	owner, handle, err := s.own(ctx, kind, s.sizes.check, 3, 8192)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, owner.end()) }()
	opener, err := s.open(ctx, handle)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, opener.end()) }()
	return s.sizes.check.String() + " in 3 pieces", errors.Join(opener.agree(verify(seedA)), opener.agree(fill(seedB)),
		owner.agree(verify(seedB)), owner.agree("guards"))
}

func verify(seed uint64) string { return fmt.Sprint("verify ", seed) }
func fill(seed uint64) string   { return fmt.Sprint("fill ", seed) }
