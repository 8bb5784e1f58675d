package objects

import "context"

func (h *Holder) replicate(context.Context, *object, uint64, []Blob) error { return nil }
