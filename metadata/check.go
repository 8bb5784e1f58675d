package metadata

import "context"

// Check is under construction.
func (s *Store) Check(ctx context.Context, fn func(Problem)) error { return nil }

// Repair is under construction.
func (s *Store) Repair(ctx context.Context, p Problem) error { return nil }
